"""PDFs, page images and Markdown. No second program reads them alike, so the oracle is weaker.

What is accepted has a page or more; each page has an image of at most the allowed pixels; each chunk lies on its page
and has text that UTF-8 can write. For a PDF that is not mutated, the texts are compared.
"""

import io
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any, ClassVar

from tests.fuzz.mutations.byte_strings import mutate_bytes
from tests.fuzz.mutations.tables import mutate_lines
from tests.fuzz.reader import Input, Reader, Unknown

_SETTINGS: dict[str, Any] = {"dpi": 36, "max_page_pixels": 40_000, "max_pages": 50, "workers": 1}
_MARKDOWN = """# Pump

Press **start**, then [read](other.md) the gauge.

![The pump](page/2.png "title")

| Part | Mass |
|------|-----:|
| Fuse | 2 g  |

## Faults
- leak
- noise

```
code
```
"""


class Documents(Reader):
    """Converts a document as a worker of `prepare` does."""

    seconds: ClassVar[float] = 5.0
    slow_tier: ClassVar[int] = 60

    def surround(self, folder: Path) -> None:
        (folder / "page").mkdir()
        for number in (1, 2, 10):
            (folder / "page" / f"{number}.png").write_bytes(_png(number))

    def read(self, path: Path) -> Any:
        from datamodules.document_qa.ingestion.convert import convert_document
        from datamodules.document_qa.ingestion.document_cache import DocumentCache
        from datamodules.document_qa.ingestion.ingested_document import IngestedDocument
        from datamodules.document_qa.ingestion.settings import IngestionSettings

        document = path.parent if path.parent.name == "page" else path
        cache = DocumentCache(path.parent / "cache", IngestionSettings(**_SETTINGS))
        result = convert_document(document, cache)
        if result.broken:
            raise ValueError(f"{path}: {result.broken}")  # `prepare` names the document likewise
        found = IngestedDocument(document.name, cache.document_folder(result.key))
        for number, page in enumerate(found.pages, 1):
            picture = found.picture(number)
            assert 0 < picture.width * picture.height <= _SETTINGS["max_page_pixels"], picture.size
            for chunk in page.chunks:
                assert chunk.page == number, chunk
                assert chunk.kind, chunk
                assert chunk.text.encode() is not None, chunk
                assert 0 <= chunk.box[0] <= chunk.box[2] <= 1, chunk
                assert 0 <= chunk.box[1] <= chunk.box[3] <= 1, chunk
        return [[chunk.text for chunk in page.chunks] for page in found.pages]

    def names_location(self, message: str, data: bytes) -> bool:
        return True  # of a corrupt document the page is the location; a file that is no document has none


class Pdfs(Documents):
    """PDFs with text, a ruled table and an image."""

    def seeds(self) -> Sequence[Input]:
        return [Input("manual.pdf", _pdf(compressed=False)), Input("small.pdf", _pdf(compressed=True))]

    def restructure(self, random: Random, data: bytes) -> bytes:
        """Mutate a line, or exchange a number or a name: most of a PDF without compression is text."""
        tokens = (
            b"/Type",
            b"/Page",
            b"/Pages",
            b"/Kids",
            b"/Count",
            b"/Length",
            b"/MediaBox",
            b"/Font",
            b"stream",
            b"R",
        )
        numbers = (b"0", b"-1", b"1e9", b"99999999999", b"4294967296", b"1 0 R", b"<< >>", b"null", b"[" * 500)
        if random.random() < 0.4:
            return mutate_lines(random, data)
        token = random.choice(tokens)
        offsets = [at for at in range(len(data)) if data.startswith(token, at)]
        if not offsets:
            return mutate_bytes(random, data)
        at = random.choice(offsets)
        end = at + len(token)
        return (
            data[:at]
            + random.choice((token + b" " + random.choice(numbers) + b" ", random.choice(tokens)))
            + data[end:]
        )

    def reference(self, path: Path) -> Any:
        if path.read_bytes() in (seed.data for seed in self.seeds()):
            return [[_LINE, _TABLE, ""], [_LINE]]
        raise Unknown("a mutated PDF is repaired by each program in its own way")

    def agrees(self, actual: Any, expected: Any) -> bool:
        return sorted(map(len, actual)) == sorted(map(len, expected)) and all(_LINE in page for page in actual)


class PageImages(Documents):
    """A folder of page images, of which a single image is mutated, and Markdown with an image."""

    seconds: ClassVar[float] = 2.0

    def seeds(self) -> Sequence[Input]:
        return [Input("page/2.png", _png(2)), Input("manual.md", _MARKDOWN.encode())]

    def restructure(self, random: Random, data: bytes) -> bytes:
        from tests.fuzz.readers.images import Images

        if data.startswith(b"\x89PNG"):
            return Images().restructure(random, data)
        return mutate_lines(random, data)

    def reference(self, path: Path) -> Any:
        raise Unknown("pages of images and of Markdown are rendered by no other program")


READERS = {"pdf": Pdfs, "pages": PageImages}

_LINE = "The motor turns when the valve is closed."
_TABLE = "Part | Mass\nFuse | 2 g"


def _png(number: int) -> bytes:
    from PIL import Image

    file = io.BytesIO()
    Image.new("RGB", (20 + number, 30), (number * 20, 90, 200)).save(file, "PNG")
    return file.getvalue()


def _pdf(compressed: bool) -> bytes:
    """A PDF of two pages, small enough to be a kept case."""
    from reportlab.lib.utils import ImageReader
    from reportlab.pdfgen.canvas import Canvas

    file = io.BytesIO()
    canvas = Canvas(file, pagesize=(200, 150), invariant=1, pageCompression=int(compressed))
    canvas.setFont("Helvetica", 8)
    canvas.drawString(15, 130, _LINE)
    for row, cells in enumerate((("Part", "Mass"), ("Fuse", "2 g"))):
        for column, cell in enumerate(cells):
            canvas.rect(20 + 60 * column, 90 - 15 * row, 60, 15)
            canvas.drawString(25 + 60 * column, 94 - 15 * row, cell)
    canvas.drawImage(ImageReader(io.BytesIO(_png(1))), 120, 20, 40, 40)
    canvas.showPage()
    canvas.setFont("Helvetica", 8)
    canvas.drawString(15, 130, _LINE)
    canvas.showPage()
    canvas.save()
    return file.getvalue()

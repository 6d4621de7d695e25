"""A document that has been ingested: chunks in a file, a picture a page. The files are read when they are needed.

    FOLDER/document.json   pages, and what they were made from; written last
    FOLDER/chunks.jsonl    a chunk a line, in reading order: {"page", "kind", "box", "text"}
    FOLDER/pages/001.png   a page as it looks
"""

import json
from collections.abc import Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from datamodules.document_qa.document import KINDS, Chunk, Page
from datamodules.multimodal.image_decoding import MAX_PIXELS, decode

if TYPE_CHECKING:
    from PIL.Image import Image

DOCUMENT, CHUNKS, PAGES = "document.json", "chunks.jsonl", "pages"

_DECODED = 4
"""Pages, of all documents together, whose pictures are kept in memory: 12 MB each, and more at a higher dpi."""


def picture_name(page: int) -> str:
    """Of a page's file, within PAGES."""
    return f"{page:03d}.png"


class IngestedDocument:
    """A `Document` in a folder of the cache.

    Args:
        name: what questions call it.
        folder: of its files.
    """

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder = name, folder

    def __repr__(self) -> str:
        return f"IngestedDocument({self.name!r}, {str(self.folder)!r})"

    @cached_property
    def pages(self) -> Sequence[Page]:
        """All of them, page n at n - 1; read at the first use.

        Raises:
            ValueError: a file was changed or cut off since.
        """
        number = self._number_of_pages()
        chunks: list[list[Chunk]] = [[] for _ in range(number)]
        with (self.folder / CHUNKS).open(encoding="utf-8") as file:
            for place, line in enumerate(file, 1):
                try:
                    chunk = _chunk(json.loads(line))
                    chunks[chunk.page - 1].append(chunk)
                except (ValueError, KeyError, TypeError, IndexError) as error:
                    raise self._damaged(f"{CHUNKS}, line {place}", error) from error
        return tuple(Page(page, tuple(one)) for page, one in enumerate(chunks, 1))

    def picture(self, page: int) -> "Image":
        """A page as it looks, in RGB.

        Raises:
            ValueError: there is no such page, or its file was changed or cut off since.
        """
        path = self.folder / PAGES / picture_name(page)
        try:
            return _decoded(path).copy()
        except FileNotFoundError:
            pages = self._number_of_pages()
            if not 1 <= page <= pages:
                raise ValueError(f"{self.name} has pages 1 to {pages}, not {page}") from None
            raise self._damaged(f"{PAGES}/{path.name}", "it is gone") from None
        except ValueError as error:
            raise self._damaged(f"{PAGES}/{path.name}", error) from error

    def figure(self, chunk: Chunk) -> "Image":
        """A chunk as it looks, cut out of its page, in RGB; at least one pixel."""
        picture = self.picture(chunk.page)
        (width, height), (left, top, right, bottom) = picture.size, chunk.box
        x, y = min(round(left * width), width - 1), min(round(top * height), height - 1)
        return picture.crop((x, y, max(x + 1, round(right * width)), max(y + 1, round(bottom * height))))

    def _number_of_pages(self) -> int:
        try:
            return int(json.loads((self.folder / DOCUMENT).read_bytes())["pages"])
        except FileNotFoundError:
            raise ValueError(f"{self.name}: {self.folder} is gone; run `train.py prepare` again") from None
        except (ValueError, KeyError, TypeError) as error:
            raise self._damaged(DOCUMENT, error) from error

    def _damaged(self, what: str, error: object) -> ValueError:
        return ValueError(
            f"{self.name}: {self.folder / what} is damaged ({error}); delete its folder and run `train.py prepare`"
        )


@lru_cache(maxsize=_DECODED)
def _decoded(path: Path) -> "Image":
    """One cache for all documents of a process, as many may be open: a page is asked for its figures one by one."""
    return decode(path.read_bytes(), str(path), MAX_PIXELS)


def _chunk(record: dict[str, object]) -> Chunk:
    page, kind, box, text = (record[name] for name in ("page", "kind", "box", "text"))
    if not isinstance(page, int) or page < 1 or kind not in KINDS or not isinstance(text, str):
        raise ValueError(f"found {str(record)[:100]}, expected a chunk")
    left, top, right, bottom = map(float, box)  # type: ignore[call-overload]
    return Chunk(page, kind, (left, top, right, bottom), text)

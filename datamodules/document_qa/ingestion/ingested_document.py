"""Reads an ingested document on demand: chunks in a JSON lines file, and an image per page.

FOLDER/document.json   number of pages, CRC-32 of chunks.jsonl, ingestion settings, own checksum; written last
FOLDER/chunks.jsonl    one chunk per line, in reading order: {"page", "kind", "box", "text"}
FOLDER/pages/001.png   image of a page
"""

import json
import zlib
from collections.abc import Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from datamodules.document_qa.types.document import KINDS, Chunk, Page
from datamodules.images.decoding import MAX_PIXELS, decode
from engine.io.json_checksum import has_wrong_checksum
from engine.system.installation import PROGRAM

if TYPE_CHECKING:
    from PIL.Image import Image

DOCUMENT, CHUNKS, PAGES = "document.json", "chunks.jsonl", "pages"

CHECKSUM = "chunks_crc32"
"""Key in document.json. Documents of Lockstep 0.1 lack it and are not compared."""

_DECODED = 4
"""Number of page images kept in memory, over all documents: 12 MB each, more at a higher dpi."""


def picture_name(page: int) -> str:
    """Return the file name of a page image within PAGES."""
    return f"{page:03d}.png"


class IngestedDocument:
    """A Document in a folder of the cache.

    Args:
        name: name by which questions refer to it.
        folder: folder of its files.
    """

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder = name, folder

    def __repr__(self) -> str:
        return f"IngestedDocument({self.name!r}, {str(self.folder)!r})"

    @cached_property
    def pages(self) -> Sequence[Page]:
        """All pages, page n at index n - 1; read at first use.

        Raises:
            ValueError: a file is corrupt.
        """
        chunks: list[list[Chunk]] = [[] for _ in range(self._number_of_pages())]
        checksum = 0
        with (self.folder / CHUNKS).open("rb") as file:
            for number, line in enumerate(file, 1):
                checksum = zlib.crc32(line, checksum)
                try:
                    chunk = _chunk(json.loads(line))
                    chunks[chunk.page - 1].append(chunk)
                except (ValueError, KeyError, TypeError, IndexError) as error:
                    raise self._corrupt(f"{CHUNKS}, line {number}", error) from error
        if self._description().get(CHECKSUM, checksum) != checksum:
            raise self._corrupt(CHUNKS, "its checksum differs from that of the ingestion")
        return tuple(Page(page, tuple(page_chunks)) for page, page_chunks in enumerate(chunks, 1))

    def picture(self, page: int) -> "Image":
        """Return the image of a page, in RGB.

        Raises:
            ValueError: the page does not exist, or its file is missing or corrupt.
        """
        path = self.folder / PAGES / picture_name(page)
        try:
            # A copy, because views paste into the image, and the cache holds it for the next caller.
            return _decode(path).copy()
        except FileNotFoundError:
            pages = self._number_of_pages()
            if not 1 <= page <= pages:
                raise ValueError(f"{self.name} has pages 1 to {pages}, not {page}") from None
            raise self._corrupt(f"{PAGES}/{path.name}", "the file is missing") from None
        except ValueError as error:
            raise self._corrupt(f"{PAGES}/{path.name}", error) from error

    def figure(self, chunk: Chunk) -> "Image":
        """Return the image of a chunk, cut out of its page, in RGB; at least one pixel in size."""
        picture = self.picture(chunk.page)
        (width, height), (left, top, right, bottom) = picture.size, chunk.box
        x, y = min(round(left * width), width - 1), min(round(top * height), height - 1)
        return picture.crop((x, y, max(x + 1, round(right * width)), max(y + 1, round(bottom * height))))

    def _number_of_pages(self) -> int:
        return int(self._description()["pages"])

    def _description(self) -> dict[str, Any]:
        try:
            description = json.loads((self.folder / DOCUMENT).read_bytes())
            if has_wrong_checksum(description):
                raise ValueError("a value has changed since it was written")
            return {**description, "pages": int(description["pages"])}
        except FileNotFoundError:
            raise ValueError(f"{self.name}: {self.folder} is missing; run `{PROGRAM} prepare` again") from None
        except (ValueError, KeyError, TypeError) as error:
            raise self._corrupt(DOCUMENT, error) from error

    def _corrupt(self, what: str, error: object) -> ValueError:
        return ValueError(
            f"{self.name}: {self.folder / what} is corrupt ({error}); delete its folder and run `{PROGRAM} prepare`"
        )


@lru_cache(maxsize=_DECODED)
def _decode(path: Path) -> "Image":
    # One cache for all documents of a process: successive figures are often on the same page.
    return decode(path.read_bytes(), str(path), MAX_PIXELS)


def _chunk(record: dict[str, Any]) -> Chunk:
    page, kind, box, text = (record[name] for name in ("page", "kind", "box", "text"))
    if not isinstance(page, int) or page < 1 or kind not in KINDS or not isinstance(text, str):
        raise ValueError(f"found {str(record)[:100]}, expected a chunk")
    left, top, right, bottom = map(float, box)
    return Chunk(page, kind, (left, top, right, bottom), text)

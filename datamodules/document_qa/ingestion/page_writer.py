"""The files of a document that is being ingested."""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from datamodules.document_qa.document import Chunk
from datamodules.document_qa.ingestion.broken import BrokenDocument
from datamodules.document_qa.ingestion.ingested_document import CHUNKS, PAGES, picture_name
from datamodules.document_qa.ingestion.settings import IngestionSettings

if TYPE_CHECKING:
    from PIL.Image import Image

_DIGITS = 4  # of a box: a hundredth of a per cent of the page, less than a pixel
_COMPRESSION = 1  # of zlib: more takes several times as long and saves little of what is rendered


class PageWriter:
    """Writes pages, one after the other, into a folder. To be used in a with-block."""

    def __init__(self, folder: Path, settings: IngestionSettings) -> None:
        self.folder, self.settings, self.pages = folder, settings, 0
        self.notes: list[str] = []

    def __enter__(self) -> "PageWriter":
        (self.folder / PAGES).mkdir()
        self._chunks = (self.folder / CHUNKS).open("w", encoding="utf-8", newline="\n")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is None:
            self._chunks.flush()
            os.fsync(self._chunks.fileno())
        self._chunks.close()

    def note(self, text: str) -> None:
        """Something that the user should hear of, but that breaks nothing."""
        self.notes.append(text)

    def add(self, picture: "Image", chunks: Iterable[Chunk]) -> None:
        """The next page, with its chunks in reading order; their `page` is filled in.

        Raises:
            BrokenDocument: it is a page too many.
        """
        os.utime(self.folder)  # pages lie deeper: for other machines it must not look forgotten
        self.pages += 1
        if self.pages > self.settings.max_pages:
            raise BrokenDocument(
                f"it has more than {self.settings.max_pages:,} pages, which ingestion.max_pages does not allow"
            )
        _plainest(picture).save(
            self.folder / PAGES / picture_name(self.pages), format="PNG", compress_level=_COMPRESSION
        )
        for chunk in chunks:
            box = [round(min(max(edge, 0.0), 1.0), _DIGITS) for edge in chunk.box]
            record = {"page": self.pages, "kind": chunk.kind, "box": box, "text": chunk.text}
            self._chunks.write(json.dumps(record, ensure_ascii=False) + "\n")


def fitted(picture: "Image", max_pixels: int) -> "Image":
    """A picture with at most so many pixels, of the same shape."""
    width, height = picture.size
    if width * height <= max_pixels:
        return picture
    from PIL.Image import Resampling

    scale = (max_pixels / (width * height)) ** 0.5
    size = max(1, min(int(width * scale), max_pixels)), max(1, min(int(height * scale), max_pixels))
    return picture.resize(size, Resampling.LANCZOS, reducing_gap=3.0)


def _plainest(picture: "Image") -> "Image":
    """In grey where there is nothing else: most pages of manuals, a third of the bytes."""
    import numpy as np

    if picture.mode != "RGB":
        return picture
    pixels = np.asarray(picture)
    red, green, blue = (pixels[..., channel] for channel in range(3))
    if not ((red == green).all() and (green == blue).all()):
        return picture
    return picture.getchannel(0)

"""Writes the files of a document during its ingestion."""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from datamodules.document_qa.ingestion.ingested_document import CHUNKS, PAGES, picture_name
from datamodules.document_qa.ingestion.ocr.page_text import recognized_chunks
from datamodules.document_qa.ingestion.ocr.recognizer import RecognitionError
from datamodules.document_qa.ingestion.settings import IngestionSettings
from datamodules.document_qa.types.document import Chunk
from engine.data.errors import UnreadableDocumentError

if TYPE_CHECKING:
    from PIL.Image import Image

_DIGITS = 4  # of box coordinates: 0.01 % of the page, less than a pixel
_COMPRESSION = 1  # zlib level: higher levels take several times as long and save little on rendered pages


class PageWriter:
    """Context manager that writes successive pages into a folder."""

    def __init__(self, folder: Path, settings: IngestionSettings) -> None:
        self.folder, self.settings, self.pages = folder, settings, 0
        self.notes: list[str] = []
        self._without_text = 0

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
        """Add a warning for the user."""
        self.notes.append(text)

    def note_missing_text(self) -> None:
        """Add a warning if pages have images and no text."""
        if self._without_text:
            pages = f"{self._without_text:,} of {self.pages:,} pages"
            text = (
                f"{pages} have no text, so no words of them are found or read: set data.init_args.ingestion.ocr to "
                "rapidocr or tesseract"
                if self.settings.ocr == "none"
                else f"{self.settings.ocr} found no text on {pages}"
            )
            self.notes.insert(0, text)  # only the first notes are logged

    def add(self, picture: "Image", chunks: Iterable[Chunk]) -> None:
        """Write the next page, with its chunks in reading order; `page` of the chunks is filled in.

        Raises:
            UnreadableDocumentError: the document exceeds `max_pages`.
        """
        # Files are written below the folder; its own time shows other processes that it is in use.
        os.utime(self.folder)
        self.pages += 1
        if self.pages > self.settings.max_pages:
            raise UnreadableDocumentError(
                f"found {self.pages:,} pages or more, ingestion.max_pages allows {self.settings.max_pages:,}"
            )
        _plainest(picture).save(
            self.folder / PAGES / picture_name(self.pages), format="PNG", compress_level=_COMPRESSION
        )
        for chunk in self._add_recognized_text(list(chunks), picture):
            box = [round(min(max(edge, 0.0), 1.0), _DIGITS) for edge in chunk.box]
            record = {"page": self.pages, "kind": chunk.kind, "box": box, "text": chunk.text}
            self._chunks.write(json.dumps(record, ensure_ascii=False) + "\n")

    def _add_recognized_text(self, chunks: list[Chunk], picture: "Image") -> list[Chunk]:
        """Return the chunks of a page, with its recognized text if it has none."""
        if not chunks or any(chunk.text for chunk in chunks):
            return chunks
        recognized: list[Chunk] = []
        if self.settings.ocr != "none":
            try:
                recognized = recognized_chunks(picture, self.pages, self.settings.ocr)
            except RecognitionError as error:
                self.note(f"page {self.pages}: {error}")
        self._without_text += not recognized
        return [*chunks, *recognized]


def limit_pixels(picture: "Image", max_pixels: int) -> "Image":
    """Scale an image down to at most `max_pixels`, keeping its aspect ratio."""
    width, height = picture.size
    if width * height <= max_pixels:
        return picture
    from PIL.Image import Resampling

    scale = (max_pixels / (width * height)) ** 0.5
    size = max(1, min(int(width * scale), max_pixels)), max(1, min(int(height * scale), max_pixels))
    # With reducing_gap, Pillow first reduces by a whole factor, which is faster at nearly the same quality.
    return picture.resize(size, Resampling.LANCZOS, reducing_gap=3.0)


def _plainest(picture: "Image") -> "Image":
    """Return a colorless image in grayscale: most pages of manuals are, and it takes a third of the bytes."""
    import numpy as np

    if picture.mode != "RGB":
        return picture
    pixels = np.asarray(picture)
    red, green, blue = (pixels[..., channel] for channel in range(3))
    if not ((red == green).all() and (green == blue).all()):
        return picture
    return picture.getchannel(0)

"""Pages of documents as pictures in a report: each once, and not more than a browser opens quickly."""

import base64
import io
from typing import TYPE_CHECKING, Any

from datamodules.document_qa.document import Document

if TYPE_CHECKING:
    from PIL.Image import Image

_EDGE = 720
"""Pixels of a page's longer edge, at most: ten points are still read."""

_COLOURS = 32
"""Of a page that is stored as PNG: drawings and letters have few, photographs more."""

_PHOTOGRAPH = 48 << 10
"""Bytes of a PNG above which JPEG is tried."""

_BYTES = 24 << 20
"""Of all pictures of a report together."""

_PAGES = 300
"""So that nobody waits long for a report: a page takes some hundredths of a second."""


class PagePictures:
    """Collects pages until there are enough, or the report would grow too large."""

    def __init__(self, pages_at_most: int = _PAGES, bytes_at_most: int = _BYTES) -> None:
        self.uris: dict[str, str] = {}
        """{key: data URI}"""
        self.missing = 0
        """Pages that found no room."""
        self._pages_left, self._bytes_left = pages_at_most, bytes_at_most

    def add(self, document: Document, page: int, altered: str = "") -> str | None:
        """The key of a page's picture; None: there is no room for it, or no such page.

        Args:
            altered: what names the document as it is shown, where that is not how it always is.
        """
        key = f"{document.name}{altered and ' ' + altered}#{page}"
        if key in self.uris:
            return key
        if not 1 <= page <= len(document.pages):
            return None
        if self._pages_left <= 0 or self._bytes_left <= 0:
            self.missing += 1
            return None
        self.uris[key] = data_uri(document.picture(page))
        self._pages_left -= 1
        self._bytes_left -= len(self.uris[key])
        return key

    def content(self) -> dict[str, Any]:
        """For a report's JSON."""
        return {"uris": self.uris, "missing": self.missing}


def data_uri(picture: "Image") -> str:
    """A page in a report's own text: as PNG with few colours, or as JPEG if that is smaller, as photographs are."""
    from PIL.Image import Quantize, Resampling

    picture = picture.convert("RGB")
    picture.thumbnail((_EDGE, _EDGE), Resampling.BILINEAR)
    form, stored = "png", _stored(picture.quantize(_COLOURS, Quantize.FASTOCTREE), "png", compress_level=6)
    if len(stored) > _PHOTOGRAPH:
        form, stored = min((form, stored), ("jpeg", _stored(picture, "jpeg", quality=70)), key=lambda one: len(one[1]))
    return f"data:image/{form};base64,{base64.b64encode(stored).decode('ascii')}"


def _stored(picture: "Image", form: str, **options: int) -> bytes:
    file = io.BytesIO()
    picture.save(file, form, **options)
    return file.getvalue()

"""Embeds page images in a report: each page once, within limits of number and size."""

import base64
import io
from typing import TYPE_CHECKING, Any

from datamodules.document_qa.types.document import Document

if TYPE_CHECKING:
    from PIL.Image import Image

_EDGE = 720
"""Largest edge of a page image in pixels; text of 10 points is readable."""

_MAX_COLORS = 32
"""Number of colors of a PNG, enough for drawings and text."""

_PHOTOGRAPH = 48 << 10
"""Bytes of a PNG above which JPEG is tried."""

_BYTES = 24 << 20
"""Largest total size of all images of a report, in bytes."""

_PAGES = 300
"""Largest number of pages of a report; each takes some hundredths of a second."""


class PageImages:
    """Collects page images until a limit is reached."""

    def __init__(self, pages_at_most: int = _PAGES, bytes_at_most: int = _BYTES) -> None:
        self.uris: dict[str, str] = {}
        """{key: data URI}"""
        self.missing = 0
        """Number of pages beyond the limits."""
        self._pages_left, self._bytes_left = pages_at_most, bytes_at_most

    def add(self, document: Document, page: int, altered: str = "") -> str | None:
        """Add a page and return its key; None if a limit is reached, or the page does not exist.

        Args:
            document: the document, as the model sees it.
            page: page number, from 1.
            altered: suffix of the document's name, if its content differs between samples.
        """
        key = f"{document.name}{altered and ' ' + altered}#{page}"
        if key in self.uris:
            return key
        if not 1 <= page <= len(document.pages):
            return None
        if self._pages_left <= 0 or self._bytes_left <= 0:
            self.missing += 1
            return None
        self.uris[key] = page_data_url(document.picture(page))
        self._pages_left -= 1
        self._bytes_left -= len(self.uris[key])
        return key

    def content(self) -> dict[str, Any]:
        """Return the content for the report's JSON."""
        return {"uris": self.uris, "missing": self.missing}


def page_data_url(picture: "Image") -> str:
    """Encode a page image as a data URI: PNG with few colors, or JPEG if that is smaller."""
    from PIL.Image import Quantize, Resampling

    picture = picture.convert("RGB")
    picture.thumbnail((_EDGE, _EDGE), Resampling.BILINEAR)
    form, stored = "png", _encode_image(picture.quantize(_MAX_COLORS, Quantize.FASTOCTREE), "png", compress_level=6)
    if len(stored) > _PHOTOGRAPH:
        jpeg = _encode_image(picture, "jpeg", quality=70)
        form, stored = min((form, stored), ("jpeg", jpeg), key=lambda candidate: len(candidate[1]))
    return f"data:image/{form};base64,{base64.b64encode(stored).decode('ascii')}"


def _encode_image(picture: "Image", form: str, **options: int) -> bytes:
    file = io.BytesIO()
    picture.save(file, form, **options)
    return file.getvalue()

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

_BYTES = 24 << 20
"""Of all pictures of a report together."""


class PagePictures:
    """Collects pages until the report would grow too large."""

    def __init__(self, bytes_at_most: int = _BYTES) -> None:
        self.uris: dict[str, str] = {}
        """{key: data URI}"""
        self.missing = 0
        """Pages that found no room."""
        self._left = bytes_at_most

    def add(self, document: Document, page: int) -> str | None:
        """The key of a page's picture; None: there is no room for it, or no such page."""
        key = f"{document.name}#{page}"
        if key in self.uris:
            return key
        if not 1 <= page <= len(document.pages):
            return None
        if self._left <= 0:
            self.missing += 1
            return None
        self.uris[key] = data_uri(document.picture(page))
        self._left -= len(self.uris[key])
        return key

    def content(self) -> dict[str, Any]:
        """For a report's JSON."""
        return {"uris": self.uris, "missing": self.missing}


def data_uri(picture: "Image") -> str:
    """A page in a report's own text: as PNG with few colours or as JPEG, whichever is smaller."""
    picture = picture.convert("RGB")
    picture.thumbnail((_EDGE, _EDGE))
    forms = {}
    for form, stored, options in (
        ("png", picture.quantize(_COLOURS), {"optimize": True}),
        ("jpeg", picture, {"quality": 70}),
    ):
        file = io.BytesIO()
        stored.save(file, form, **options)
        forms[form] = file.getvalue()
    form = min(forms, key=lambda name: len(forms[name]))
    return f"data:image/{form};base64,{base64.b64encode(forms[form]).decode('ascii')}"

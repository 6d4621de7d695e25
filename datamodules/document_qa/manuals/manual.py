"""A synthetic manual as a document: what reading its PDF would give, without the PDF."""

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from datamodules.document_qa.document import Chunk, Page
from datamodules.document_qa.manuals.devices import Chapter, Device, make_device
from datamodules.document_qa.manuals.drawing import draw
from datamodules.document_qa.manuals.layout import Placed, lay_out
from datamodules.document_qa.manuals.settings import ManualSettings, PageKind, Split
from engine.randomness import hash_bits

if TYPE_CHECKING:
    from PIL.Image import Image

GENERATOR_VERSION = 1
"""Goes up with every change that gives other samples."""

_STREAM = 0xD0C0A  # this generator's name beside whatever else hashes the same seed
_DEVICE, _TEXT, _PICTURE = 0, 1, 2


class Manual:
    """A `Document`: a function of its arguments.

    Args:
        settings: what it is like.
        key: of everything random.
        name: what questions call it.
    """

    def __init__(self, settings: ManualSettings, key: int, name: str) -> None:
        self.settings, self.key, self.name = settings, key, name

    @cached_property
    def device(self) -> Device:
        """What it is about."""
        return make_device(self._random(_DEVICE), self.settings, self.name)

    @cached_property
    def layout(self) -> list[tuple[Chapter, PageKind, tuple[Placed, ...]]]:
        """Of each page."""
        return lay_out(self.device, self._random(_TEXT))

    @cached_property
    def pages(self) -> tuple[Page, ...]:
        return tuple(
            Page(number, tuple(Chunk(number, one.kind, one.box, one.text) for one in placed))
            for number, (_, _, placed) in enumerate(self.layout, 1)
        )

    def figure(self, chunk: Chunk) -> "Image":
        """Its drawing, or a piece of text or a table as it looks; in RGB."""
        if chunk.kind == "figure":
            return self.drawing(chunk.page)
        picture = self.picture(chunk.page)
        left, top, right, bottom = chunk.box
        width, height = picture.size
        return picture.crop((int(left * width), int(top * height), round(right * width), round(bottom * height)))

    def drawing(self, page: int) -> "Image":
        """Of the chapter that a page belongs to; always the same."""
        return draw(self.layout[page - 1][0], self.settings, self._random(_PICTURE, page))

    def picture(self, page: int) -> "Image":
        """A page of its PDF as it looks, in RGB."""
        from datamodules.document_qa.manuals.pdf import render

        return render(self, page)

    def _random(self, *purpose: int) -> np.random.Generator:
        return np.random.Generator(np.random.Philox(key=int(hash_bits(self.key, *purpose))))


def manual_key(seed: int, split: Split, epoch: int, index: int) -> int:
    """Of a manual; different splits never have the same."""
    return int(hash_bits(_STREAM, GENERATOR_VERSION, seed, split, epoch, index) >> np.uint64(1))

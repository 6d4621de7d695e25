"""Generates a synthetic manual as a Document, equal to what ingestion of its PDF gives."""

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from datamodules.document_qa.manuals.devices import Chapter, Device, make_device
from datamodules.document_qa.manuals.drawing import draw_parts
from datamodules.document_qa.manuals.layout import LayoutBox, lay_out
from datamodules.document_qa.manuals.pdf_writer import pdf_bytes, render_page
from datamodules.document_qa.manuals.settings import ManualSettings, PageKind
from datamodules.document_qa.types.document import Chunk, Page
from datamodules.multimodal.synthetic_split import Split
from engine.determinism.stateless_rng import hash_bits

if TYPE_CHECKING:
    from PIL.Image import Image

GENERATOR_VERSION = 1
"""Version of the generator; increased by every change of the samples."""

_STREAM = 0xD0C0A  # separates these random numbers from others that hash the same seed
_DEVICE, _TEXT, _PICTURE = 0, 1, 2


class Manual:
    """A Document that is a function of its arguments.

    Args:
        settings: properties of the manual.
        key: key of all random numbers.
        name: name by which questions refer to it.
    """

    def __init__(self, settings: ManualSettings, key: int, name: str) -> None:
        self.settings, self.key, self.name = settings, key, name

    @cached_property
    def device(self) -> Device:
        """The device that the manual describes."""
        return make_device(self._random(_DEVICE), self.settings, self.name)

    @cached_property
    def layout(self) -> list[tuple[Chapter, PageKind, tuple[LayoutBox, ...]]]:
        """Chapter, kind and elements of each page."""
        return lay_out(self.device, self._random(_TEXT))

    @cached_property
    def pages(self) -> tuple[Page, ...]:
        """All pages, with their chunks."""
        return tuple(
            Page(number, tuple(Chunk(number, element.kind, element.box, element.text) for element in placed))
            for number, (_, _, placed) in enumerate(self.layout, 1)
        )

    def figure(self, chunk: Chunk) -> "Image":
        """Return the image of a chunk, in RGB; of a figure, the drawing itself."""
        if chunk.kind == "figure":
            return self.drawing(chunk.page)
        picture = self.picture(chunk.page)
        left, top, right, bottom = chunk.box
        width, height = picture.size
        return picture.crop((int(left * width), int(top * height), round(right * width), round(bottom * height)))

    def drawing(self, page: int) -> "Image":
        """Return the drawing of the chapter that a page belongs to."""
        return draw_parts(self.layout[page - 1][0], self.settings, self._random(_PICTURE, page))

    def picture(self, page: int) -> "Image":
        """Render a page of the manual's PDF, in RGB."""
        return render_page(self.pdf(), page)

    def pdf(self) -> bytes:
        """Return the manual as a PDF; the bytes are the same on every call."""
        return pdf_bytes(self.name, [placed for _, _, placed in self.layout], self.drawing)

    def _random(self, *purpose: int) -> np.random.Generator:
        return np.random.Generator(np.random.Philox(key=int(hash_bits(self.key, *purpose))))


def manual_key(seed: int, split: Split, epoch: int, index: int) -> int:
    """Return the key of a manual; it differs between splits."""
    # Shifted, so that the key fits a signed integer of 64 bits.
    return int(hash_bits(_STREAM, GENERATOR_VERSION, seed, split, epoch, index) >> np.uint64(1))

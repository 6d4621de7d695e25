"""Adds scan artifacts to images: noise, skew, blur and JPEG compression."""

import io
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from typing_extensions import override

from datamodules.document_qa.augmentation.settings import AugmentationSettings
from datamodules.document_qa.types.document import Chunk, Document
from datamodules.document_qa.views.document_view import DocumentView
from engine.determinism.stateless_rng import hash_bits

if TYPE_CHECKING:
    from PIL.Image import Image

_PAPER = (255, 255, 255)


class ScanArtifacts(NamedTuple):
    """The artifacts of a document's images."""

    noise: float = 0.0  # standard deviation, in pixel values of 0 to 255
    skew: float = 0.0  # degrees
    quality: int | None = None  # JPEG quality; None for no compression
    blur: float = 0.0  # radius, in thousandths of the longer edge


def sample_scan(settings: AugmentationSettings, random: np.random.Generator) -> ScanArtifacts | None:
    """Draw the artifacts of a document's images; None for none."""
    scan = ScanArtifacts(
        float(random.uniform(2, 12)) if random.random() < settings.scan else 0.0,
        float(random.uniform(-settings.skew, settings.skew)),
        int(random.integers(40, 91)) if random.random() < settings.jpeg else None,
        float(random.uniform(0.5, 2.0)) if random.random() < settings.blur else 0.0,
    )
    return None if scan == ScanArtifacts() else scan


class ScannedDocument(DocumentView):
    """A document with scan artifacts, the same on every access.

    Args:
        key: key of the random noise.
    """

    def __init__(self, document: Document, scan: ScanArtifacts, key: int) -> None:
        super().__init__(document)
        self.scan, self.key = scan, key

    @override
    def picture(self, page: int) -> "Image":
        return add_artifacts(self.document.picture(page), self.scan, int(hash_bits(self.key, page)))

    @override
    def figure(self, chunk: Chunk) -> "Image":
        box = [int(edge * 1e6) for edge in chunk.box]
        return add_artifacts(self.document.figure(chunk), self.scan, int(hash_bits(self.key, chunk.page, *box)))


def add_artifacts(picture: "Image", scan: ScanArtifacts, key: int) -> "Image":
    """Apply artifacts to an image; its size is kept."""
    from PIL import Image, ImageFilter
    from PIL.Image import Resampling

    if scan.skew:
        picture = picture.rotate(scan.skew, Resampling.BICUBIC, fillcolor=_PAPER)
    if scan.blur:
        picture = picture.filter(ImageFilter.GaussianBlur(scan.blur * max(picture.size) / 1000))
    if scan.noise:
        random = np.random.Generator(np.random.Philox(key=key))
        # The same noise in all channels, as of a grayscale scanner.
        noise = random.normal(scale=scan.noise, size=(picture.height, picture.width, 1)).astype(np.float32)
        pixels = np.clip(np.asarray(picture, np.float32) + noise, 0, 255)
        picture = Image.fromarray(np.rint(pixels).astype(np.uint8))
    if scan.quality is not None:
        file = io.BytesIO()
        picture.save(file, "JPEG", quality=scan.quality)
        picture = Image.open(file).convert("RGB")
    return picture

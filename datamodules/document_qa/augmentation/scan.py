"""Pictures as a scanner and a copier make them: noisy, askew, blurred, with JPEG's blocks."""

import io
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from datamodules.document_qa.altered_document import AlteredDocument
from datamodules.document_qa.augmentation.settings import AugmentationSettings
from datamodules.document_qa.document import Chunk, Document
from engine.randomness import hash_bits

if TYPE_CHECKING:
    from PIL.Image import Image

_PAPER = (255, 255, 255)


class Scan(NamedTuple):
    """How the pictures of one document are altered."""

    noise: float = 0.0  # standard deviation, in steps of 255
    skew: float = 0.0  # degrees
    quality: int | None = None  # JPEG's; None: it is not compressed
    blur: float = 0.0  # radius in thousandths of the longer edge


def chosen_scan(settings: AugmentationSettings, random: np.random.Generator) -> Scan | None:
    """What happens to a document's pictures; None: nothing."""
    scan = Scan(
        float(random.uniform(2, 12)) if random.random() < settings.scan else 0.0,
        float(random.uniform(-settings.skew, settings.skew)),
        int(random.integers(40, 91)) if random.random() < settings.jpeg else None,
        float(random.uniform(0.5, 2.0)) if random.random() < settings.blur else 0.0,
    )
    return None if scan == Scan() else scan


class Scanned(AlteredDocument):
    """A document that was scanned; pixel for pixel the same each time.

    Args:
        key: of the noise.
    """

    def __init__(self, document: Document, scan: Scan, key: int) -> None:
        super().__init__(document)
        self.scan, self.key = scan, key

    def picture(self, page: int) -> "Image":
        return scanned(self.document.picture(page), self.scan, int(hash_bits(self.key, page)))

    def figure(self, chunk: Chunk) -> "Image":
        place = [int(edge * 1e6) for edge in chunk.box]
        return scanned(self.document.figure(chunk), self.scan, int(hash_bits(self.key, chunk.page, *place)))


def scanned(picture: "Image", scan: Scan, key: int) -> "Image":
    """A picture of the same size."""
    from PIL import Image, ImageFilter
    from PIL.Image import Resampling

    if scan.skew:
        picture = picture.rotate(scan.skew, Resampling.BICUBIC, fillcolor=_PAPER)
    if scan.blur:
        picture = picture.filter(ImageFilter.GaussianBlur(scan.blur * max(picture.size) / 1000))
    if scan.noise:
        random = np.random.Generator(np.random.Philox(key=key))
        # Of brightness alone, as a grey scanner's.
        noise = random.normal(scale=scan.noise, size=(picture.height, picture.width, 1)).astype(np.float32)
        pixels = np.clip(np.asarray(picture, np.float32) + noise, 0, 255)
        picture = Image.fromarray(np.rint(pixels).astype(np.uint8))
    if scan.quality is not None:
        file = io.BytesIO()
        picture.save(file, "JPEG", quality=scan.quality)
        picture = Image.open(file).convert("RGB")
    return picture

"""Pictures as PNG files of a size to look at."""

import io
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL.Image import Image

LARGEST, SMALLEST = 640, 128
"""Pixels of a shown picture's longer edge."""


def png(image: "Image") -> bytes:
    """A PNG file. What is larger is made smaller; what is smaller is enlarged in whole multiples: its pixels are seen.
    """
    from PIL.Image import Resampling

    image = image.convert("RGB")
    longer = max(image.size)
    if longer > LARGEST:
        size = [max(1, round(edge * LARGEST / longer)) for edge in image.size]
        image = image.resize(size, Resampling.BILINEAR, reducing_gap=2.0)
    elif longer * 2 <= SMALLEST:
        factor = SMALLEST // longer
        image = image.resize((image.width * factor, image.height * factor), Resampling.NEAREST)
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()

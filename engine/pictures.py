"""Pictures as PNG files of a size to look at."""

import io
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL.Image import Image

LARGEST, SMALLEST = 720, 128
"""Pixels of a shown picture's longer edge."""

_GAP = 4  # pixels between pictures


def png(*images: "Image") -> bytes:
    """A PNG file of an image, or of several in a square grid; see `fitted`."""
    image = fitted(images[0], LARGEST) if len(images) == 1 else _grid(images)
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def fitted(image: "Image", longest: int) -> "Image":
    """In RGB. What is larger is made smaller; what is small is enlarged in whole multiples, so that its pixels are
    seen.

    Args:
        longest: pixels that its longer edge may have.
    """
    from PIL.Image import Resampling

    image = image.convert("RGB")
    longer = max(image.size)
    if longer * 2 <= min(longest, SMALLEST):
        factor = min(longest, SMALLEST) // longer
        return image.resize((image.width * factor, image.height * factor), Resampling.NEAREST)
    if longer <= longest:
        return image
    size = [max(1, round(edge * longest / longer)) for edge in image.size]
    return image.resize(size, Resampling.BILINEAR)


def _grid(images: Sequence["Image"]) -> "Image":
    from PIL import Image

    columns = math.ceil(math.sqrt(len(images)))
    cell = LARGEST // columns
    shown = [fitted(image, cell - _GAP) for image in images]
    width, height = (max(image.size[axis] for image in shown) + _GAP for axis in (0, 1))
    sheet = Image.new("RGB", (width * min(columns, len(shown)), height * math.ceil(len(shown) / columns)), "white")
    for place, image in enumerate(shown):
        sheet.paste(image, (width * (place % columns), height * (place // columns)))
    return sheet

"""Encodes images as PNG files of a size that people can view."""

import io
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL.Image import Image

MAX_EDGE, MIN_EDGE = 720, 128
"""Bounds for the longer edge of an image, in pixels. An image within them keeps its size."""

_GAP = 4  # pixels between the images of a grid


def encode_png_grid(*images: "Image") -> bytes:
    """Encode an image, or several in a square grid, as a PNG file. Sizes follow `resize_for_display`."""
    image = resize_for_display(images[0], MAX_EDGE) if len(images) == 1 else _grid(images)
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def resize_for_display(image: "Image", longest: int) -> "Image":
    """Return the image in RGB, in a size that people can view.

    A large image is reduced. A small image is enlarged by an integer factor, so that its pixels stay sharp.

    Args:
        image: image of any mode.
        longest: largest length of the longer edge, in pixels.
    """
    from PIL.Image import Resampling

    image = image.convert("RGB")
    longer = max(image.size)
    if longer * 2 <= min(longest, MIN_EDGE):
        factor = min(longest, MIN_EDGE) // longer
        return image.resize((image.width * factor, image.height * factor), Resampling.NEAREST)
    if longer <= longest:
        return image
    size = [max(1, round(edge * longest / longer)) for edge in image.size]
    return image.resize(size, Resampling.BILINEAR)


def _grid(images: Sequence["Image"]) -> "Image":
    from PIL import Image

    # A square grid whose longer edge is at most MAX_EDGE.
    columns = math.ceil(math.sqrt(len(images)))
    cell = MAX_EDGE // columns
    resized = [resize_for_display(image, cell - _GAP) for image in images]
    # All cells have the size of the largest image, so the grid may be smaller than MAX_EDGE.
    width, height = (max(image.size[axis] for image in resized) + _GAP for axis in (0, 1))
    sheet = Image.new("RGB", (width * min(columns, len(resized)), height * math.ceil(len(resized) / columns)), "white")
    for index, image in enumerate(resized):
        sheet.paste(image, (width * (index % columns), height * (index // columns)))
    return sheet

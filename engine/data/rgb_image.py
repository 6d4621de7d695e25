"""Converts decoded images to RGB: 16 bits scaled to 8, transparency on white."""

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from PIL.Image import Image


def to_rgb(image: "Image") -> "Image":
    """Return an image of any mode in RGB, without transparency.

    Args:
        image: a loaded image. Gray values of 16 bits, also in the mode I, are divided by 256.

    Raises:
        ValueError: a TIFF image has pixels of 32 bits, whose range is unknown.
    """
    from PIL import Image

    if image.format == "TIFF" and image.mode in ("I", "F"):
        raise ValueError("its pixels have 32 bits, expected 1, 8 or 16")
    if image.mode in ("I", "I;16", "I;16B", "I;16L", "I;16N"):
        # 16-bit gray: convert() would clip values above 255 instead of scaling them.
        # For 32-bit images, `point` accepts only a linear function of the value.
        deep = image.convert("I")
        image = deep.point(lambda value: value / 256).convert("L")
        hidden = image.info.pop("transparency", None)
        if hidden is not None:  # a gray of 16 bits
            image.putalpha(Image.fromarray(np.asarray(deep) != hidden))
    if image.has_transparency_data:
        rgba = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", rgba.size, "white"), rgba)
    return image.convert("RGB")

"""Encodes a picture in the forms that users have: transparency, palettes, 16 bits, CMYK, turned, animated."""

import numpy as np
from PIL import Image

from tests.support.data_files.vision_language_files import encoded

NUMBERS = np.random.default_rng(0)
NOISE = Image.fromarray(NUMBERS.integers(0, 256, (24, 18, 4), np.uint8), "RGBA")
DEEP = Image.fromarray(NUMBERS.integers(0, 65_536, (24, 18)).astype(np.uint16))
TURNED = Image.Exif()
TURNED[0x0112] = 6

PICTURES = {
    "plain": encoded(NOISE.convert("RGB"), "PNG"),
    "transparent": encoded(NOISE, "PNG"),
    "grey and transparent": encoded(NOISE.convert("LA"), "PNG"),
    "palette": encoded(NOISE.convert("RGB").quantize(8), "PNG"),
    "palette with a transparent colour": encoded(NOISE.convert("RGB").quantize(8), "PNG", transparency=2),
    "16 bits": encoded(DEEP, "PNG"),
    "cmyk": encoded(NOISE.convert("RGB").convert("CMYK"), "JPEG"),
    "turned": encoded(NOISE.convert("RGB"), "JPEG", exif=TURNED),
    "large": encoded(NOISE.convert("RGB").resize((900, 1200)), "JPEG"),
    "animated": encoded(NOISE.convert("RGB"), "GIF", save_all=True, append_images=[Image.new("RGB", (18, 24), "red")]),
}
"""{form: an image file}."""

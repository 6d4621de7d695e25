"""Checks sizes of displayed images: small images are enlarged without interpolation."""

import io

import numpy as np
import pytest
from PIL import Image

from engine.telemetry.image_grid import MAX_EDGE, MIN_EDGE, encode_png_grid

RED, BLUE = (220, 30, 30), (30, 30, 220)


def opened(file):
    picture = Image.open(io.BytesIO(file))
    assert picture.format == "PNG"
    assert picture.mode == "RGB"
    return picture


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        ((8, 8), (128, 128)),
        ((8, 3), (128, 48)),
        ((100, 60), (100, 60)),
        ((1440, 720), (MAX_EDGE, 360)),
        ((1, 9000), (1, MAX_EDGE)),
    ],
)
def test_images_are_scaled_to_a_readable_size(size, shown):
    assert opened(encode_png_grid(Image.new("L", size, 7))).size == shown


def test_a_small_image_is_enlarged_without_interpolation():
    pixels = np.random.default_rng(0).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    found = np.asarray(opened(encode_png_grid(Image.fromarray(pixels))))
    assert np.array_equal(found, pixels.repeat(MIN_EDGE // 8, 0).repeat(MIN_EDGE // 8, 1))


def test_several_images_form_a_grid():
    found = np.asarray(opened(encode_png_grid(Image.new("RGB", (64, 64), RED), Image.new("RGBA", (500, 900), BLUE))))
    assert (found == RED).all(2).sum() == 128 * 128
    assert (found == BLUE).all(2).any()
    assert max(found.shape) <= MAX_EDGE
    five = encode_png_grid(*[Image.new("RGB", (2000, 20), RED)] * 5)
    assert max(opened(five).size) <= MAX_EDGE

"""Tests that images become views of the same size with their positions, without losing a pixel."""

import itertools

import numpy as np
import pytest
import torch
from PIL import Image

from datamodules.multimodal.batch import ImageLayout
from datamodules.multimodal.images.tiling import collate_views, concat_views, empty_views, make_views, tile_grid

RED, BLUE, GREY = (255, 0, 0), (0, 0, 255), (10, 20, 30)


def checkered(rows, columns, size):
    """Return an image of tiles with distinct colors."""
    pixels = np.zeros((rows * size, columns * size, 3), np.uint8)
    for row in range(rows):
        for column in range(columns):
            pixels[row * size : (row + 1) * size, column * size : (column + 1) * size] = color(row, column)
    return Image.fromarray(pixels)


def color(row, column):
    return (40 * row + 10, 60 * column + 5, 200)


def test_an_image_is_one_view_where_nothing_is_split():
    views = make_views(checkered(1, 2, 20), ImageLayout(8, 4))
    assert views.pixels.shape == (1, 3, 8, 8)
    assert views.pixels.dtype == np.uint8
    assert views.tile_positions.tolist() == [0]
    assert (views.pixels[0, :, 4, 0] == color(0, 0)).all()
    assert (views.pixels[0, :, 4, 7] == color(0, 1)).all()


def test_tiles_come_in_reading_order_after_the_whole():
    layout = ImageLayout(16, 4, max_tiles=4)
    views = make_views(checkered(2, 3, 16), layout)
    assert views.pixels.shape == (7, 3, 16, 16)
    assert views.tile_positions.tolist() == [0, 1, 2, 3, 5, 6, 7]  # 1 + row * max_tiles + column
    for tile, (row, column) in enumerate([(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)], 1):
        assert (views.pixels[tile].transpose(1, 2, 0) == color(row, column)).all()


@pytest.mark.parametrize(
    ("height", "width", "expected"),
    [
        (16, 16, (1, 1)),
        (10, 12, (1, 1)),  # smaller than a view: not split
        (17, 16, (2, 2)),
        (48, 32, (3, 2)),
        (64, 16, (4, 1)),
        (64, 17, (4, 2)),
        (8000, 4000, (4, 2)),  # larger than the most tiles: its shape stays
        (4000, 8000, (2, 4)),
        (9000, 10, (4, 1)),
    ],
)
def test_tiles_follow_the_shape_of_the_image(height, width, expected):
    """The longer edge gets up to `max_tiles` tiles, the shorter edge its proportion, both rounded up, as in nanoVLM."""
    layout = ImageLayout(16, 4, max_tiles=4)
    assert tile_grid(height, width, layout) == expected
    # In nanoVLM's own terms: targets in pixels, then cut.
    target = min(4 * 16, -(-max(height, width) // 16) * 16)
    shorter = max(16, -(-min(height, width) * target // max(height, width)) + 15) // 16
    assert sorted(expected) == [shorter, target // 16]
    assert tile_grid(height, width, ImageLayout(16, 4)) == (1, 1)


def test_resize_modes_stretch_pad_or_crop_an_image():
    layout = ImageLayout(8, 4, background=GREY)
    wide = Image.new("RGB", (32, 16), RED)
    wide.paste(BLUE, (0, 0, 8, 16))  # the left quarter
    stretched, padded, cropped = (
        make_views(wide, layout, resize_mode).pixels[0].transpose(1, 2, 0) for resize_mode in ("stretch", "pad", "crop")
    )
    assert (stretched[:, 0] == BLUE).all()
    assert (stretched[:, 3:] == RED).all()
    for part, color in ((padded[[0, 7]], GREY), (padded[3:5, 0], BLUE), (padded[3:5, 4:], RED)):
        assert np.abs(part.astype(int) - color).max() < 30  # bicubic filters reach over the edge
    assert (cropped[:, 2:] == RED).all()  # the middle half


def test_a_view_of_a_square_is_the_same_in_every_resize_mode():
    layout, image = ImageLayout(8, 4), checkered(2, 2, 20)
    stretched, padded, cropped = (
        make_views(image, layout, resize_mode).pixels for resize_mode in ("stretch", "pad", "crop")
    )
    assert (stretched == padded).all()
    assert (stretched == cropped).all()


def test_tiles_do_not_depend_on_the_resize_mode():
    layout, image = ImageLayout(8, 4, max_tiles=3), checkered(1, 3, 20)
    whole = {resize_mode: make_views(image, layout, resize_mode) for resize_mode in ("stretch", "pad", "crop")}
    assert all((views.pixels[1:] == whole["stretch"].pixels[1:]).all() for views in whole.values())
    assert not (whole["pad"].pixels[0] == whole["crop"].pixels[0]).all()


def test_samples_side_by_side():
    layout = ImageLayout(8, 4, max_tiles=2)
    red, blue, grey = (
        make_views(Image.new("RGB", size, color), layout)
        for size, color in (((8, 8), RED), ((16, 8), BLUE), ((8, 8), GREY))
    )
    images = collate_views([concat_views([red, blue], layout), empty_views(layout), grey], layout)
    assert images.pixels.shape == (5, 3, 8, 8)
    assert images.pixels.dtype == torch.uint8
    assert images.tile_positions.tolist() == [0, 0, 1, 2, 0]
    assert images.views.tolist() == [4, 0, 1]
    assert images.pixels[:, :, 0, 0].tolist() == [list(RED), *[list(BLUE)] * 3, list(GREY)]
    nothing = collate_views([], layout)
    assert nothing.pixels.shape == (0, 3, 8, 8)
    assert nothing.views.tolist() == [0]


@pytest.mark.parametrize("strip", [1 << 22, 200])
def test_resize_modes_are_those_of_the_published_models(monkeypatch, strip):
    """Every pixel equals LLaVA's padding, CLIP's cropping and SigLIP's stretching."""
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
    from transformers.models.llava.image_processing_pil_llava import LlavaImageProcessorPil
    from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil

    monkeypatch.setattr("datamodules.multimodal.images.tiling._STRIP", strip)
    layout, plain = ImageLayout(32, 16, background=(122, 116, 104)), {"do_rescale": False, "do_normalize": False}
    square, edge = {"height": 32, "width": 32}, {"shortest_edge": 32}
    published = {
        "stretch": SiglipImageProcessorPil(size=square, **plain),
        "pad": LlavaImageProcessorPil(size=square, do_pad=True, do_center_crop=False, **plain),
        "crop": CLIPImageProcessorPil(size=edge, crop_size=square, **plain),
    }
    numbers = np.random.default_rng(3)
    for height, width in itertools.product((1, 20, 32, 33, 57, 91, 100), repeat=2):
        image = Image.fromarray(numbers.integers(0, 256, (height, width, 3), dtype=np.uint8))
        for mode, processor in published.items():
            (expected,) = processor(images=[image], return_tensors="np")["pixel_values"]
            assert np.array_equal(make_views(image, layout, mode).pixels[0], expected), (mode, height, width)


@pytest.mark.parametrize("size", [(60_000, 1), (1, 60_000)])
@pytest.mark.parametrize("resize_mode", ["stretch", "pad", "crop"])
def test_no_enormous_image_is_made_of_a_line(monkeypatch, size, resize_mode):
    line, made = Image.new("RGB", size, RED), []
    new, resize = Image.new, Image.Image.resize
    monkeypatch.setattr(Image, "new", lambda mode, size, *rest: made.append(size) or new(mode, size, *rest))
    monkeypatch.setattr(Image.Image, "resize", lambda self, size, *rest: made.append(size) or resize(self, size, *rest))
    make_views(line, ImageLayout(32, 16), resize_mode)
    assert max(width * height for width, height in made) < 5_000_000

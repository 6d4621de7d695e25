"""Tests the tilings of transformers' classes: views, placeholders, and the order of features."""

import numpy as np
import pytest
from PIL import Image

from datamodules.multimodal.batch import ImageLayout
from datamodules.multimodal.images.image_processing import count_image_tokens, prepare_images
from datamodules.multimodal.images.tiling import collate_views, empty_views

NEXT = ImageLayout(8, 4, max_tiles=2, tiling="llava_next")
IDEFICS = ImageLayout(8, 4, max_tiles=2, tiling="idefics3")


def halves(height, width):
    """Red above blue."""
    pixels = np.zeros((height, width, 3), np.uint8)
    pixels[: height // 2, :, 0] = pixels[height // 2 :, :, 2] = 200
    return Image.fromarray(pixels)


def test_llava_next_joins_the_lines_of_tiles_without_black_edges():
    counts, views = prepare_images([halves(16, 8)], NEXT)
    assert views.tile_positions.tolist() == [0, 1, 3]
    assert views.pixels.shape == (3, 3, 8, 8)
    assert [view[0].max() > 100 for view in views.pixels] == [True, True, False], (
        "the whole, the red tile, the blue tile"
    )
    whole, lines = views.order[:4], views.order[4:].reshape(4, 3)
    assert whole.tolist() == [1, 2, 3, 4]
    assert lines.tolist() == [[5, 6, 0], [7, 8, 0], [9, 10, 0], [11, 12, 0]], "a learned vector ends each line"
    assert counts == (16,)

    counts, views = prepare_images([halves(4, 16)], NEXT)  # a sheet of 8 x 16, a quarter of it black on both sides
    assert views.order[4:].tolist() == [5, 6, 9, 10, 0, 7, 8, 11, 12, 0]
    counts, views = prepare_images([halves(2, 16)], NEXT)
    assert not views.pixels[1:, :, :3].any(), "an image on a black sheet"
    assert not views.pixels[1:, :, 5:].any(), "an image on a black sheet"
    assert counts == (4,), "an image thinner than a feature has no line of tiles"


def test_idefics3_frames_and_names_each_view():
    counts, views = prepare_images([halves(16, 8)], IDEFICS)
    assert views.tile_positions.tolist() == [1, 3, 0], "the whole comes last"
    assert [view[0].max() > 100 for view in views.pixels] == [True, False, True]
    frame, whole, first, third, start = 0, 1, 2, 4, 6
    expected = [
        [frame, name, *range(start + 4 * view, start + 4 * view + 4)] for view, name in enumerate((first, third))
    ]
    last = [frame, whole, *range(start + 8, start + 12), frame]
    assert views.order.tolist() == [*expected[0], *expected[1], *last]
    assert counts == ((6, "\n", 6, "\n\n", 7),)
    counts, views = prepare_images([halves(16, 8)], IDEFICS._replace(max_tiles=1))
    assert counts == ((7,),)
    assert views.order.tolist() == [0, 1, 2, 3, 4, 5, 0]


@pytest.mark.parametrize("layout", [NEXT, IDEFICS])
def test_features_of_a_batch_are_numbered_through(layout):
    first, second = (prepare_images([halves(*size)], layout)[1] for size in ((16, 8), (8, 8)))
    both = prepare_images([halves(16, 8), halves(8, 8)], layout)[1]
    images = collate_views([first, empty_views(layout), second], layout)
    assert images.order.indices.tolist() == both.order.tolist()
    assert images.order.counts.tolist() == [len(first.order), 0, len(second.order)]
    features = both.order[both.order >= layout.num_learned] - layout.num_learned
    assert len(set(features.tolist())) == len(features)
    assert features.max() < 4 * len(images.pixels)
    nothing = collate_views([], layout)
    assert nothing.order.indices.tolist() == []
    assert nothing.order.counts.tolist() == [0]


@pytest.mark.parametrize("layout", [NEXT, IDEFICS, ImageLayout(8, 4, 3), ImageLayout(8, 4)])
@pytest.mark.parametrize("size", [(5, 5), (8, 30), (100, 37)])
def test_the_length_of_an_image_is_known_from_its_size(layout, size):
    (count,), views = prepare_images([halves(*size)], layout)
    placeholders = count if isinstance(count, int) else sum(piece for piece in count if isinstance(piece, int))
    texts = 0 if isinstance(count, int) else sum(isinstance(piece, str) for piece in count)
    assert placeholders == (len(views.tile_positions) * layout.view_tokens if views.order is None else len(views.order))
    assert count_image_tokens(*size, layout) == placeholders + texts

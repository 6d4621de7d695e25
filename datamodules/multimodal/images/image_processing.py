"""Prepares images for a chat: their views, and the placeholders of their features."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from datamodules.multimodal.batch import ImageLayout
from datamodules.multimodal.images.idefics3 import idefics3_grid, idefics3_pieces, idefics3_views
from datamodules.multimodal.images.llava_next import llava_next_order, llava_next_views
from datamodules.multimodal.images.tiling import ResizeMode, Views, concat_views, make_views, tile_grid

if TYPE_CHECKING:
    from PIL.Image import Image


def prepare_images(
    images: Sequence["Image"], layout: ImageLayout, resize_mode: ResizeMode = "stretch"
) -> tuple[tuple[int | tuple[int | str, ...], ...], Views]:
    """Return the placeholders of each image and the views of all, the `counts` and the `modality` of a ChatItem.

    Args:
        images: images of one chat.
        layout: layout of the views.
        resize_mode: how an image becomes a square view, under the tiling `tile_positions`.
    """
    if layout.tiling == "llava_next":
        views = [llava_next_views(image, layout) for image in images]
    elif layout.tiling == "idefics3":
        views = [idefics3_views(image, layout) for image in images]
    else:
        views = [make_views(image, layout, resize_mode) for image in images]
    counts = tuple(image_placeholders(image.height, image.width, layout) for image in images)
    return counts, concat_views(views, layout)


def image_placeholders(height: int, width: int, layout: ImageLayout) -> int | tuple[int | str, ...]:
    """Return the number of placeholders of an image, or numbers of placeholders with texts between them."""
    if layout.tiling == "llava_next":
        return len(llava_next_order(height, width, layout))
    if layout.tiling == "idefics3":
        return idefics3_pieces(*idefics3_grid(height, width, layout), layout)
    rows, columns = tile_grid(height, width, layout)
    return layout.view_tokens * (1 if rows * columns == 1 else 1 + rows * columns)


def count_image_tokens(height: int, width: int, layout: ImageLayout) -> int:
    """Return the number of tokens of an image; a text between its placeholders counts as one token."""
    counts = image_placeholders(height, width, layout)
    return counts if isinstance(counts, int) else sum(1 if isinstance(piece, str) else piece for piece in counts)

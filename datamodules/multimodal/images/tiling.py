"""Cuts images into views of one size: the whole image, and its tiles (as in nanoVLM and LLaVA-NeXT)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from datamodules.multimodal.batch import FeatureOrder, ImageLayout, Images

if TYPE_CHECKING:
    from PIL.Image import Image


MARKER = "<image>"
"""Marker of an image in the text of a user."""


class Views(NamedTuple):
    """Views of the images of one sample, one image after the other."""

    pixels: NDArray[np.uint8]  # [v, 3, size, size]
    tile_positions: NDArray[np.int64]  # [v], as in Images
    order: NDArray[np.int64] | None = None  # [f], indices as in FeatureOrder; None under the tiling `tile_positions`


_STRIP = 1 << 22
"""Pixels that are padded at once."""

_LARGE = 8
"""Limit in view edges: a longer image is first reduced by an integer factor with a box filter, then padded."""

_ENORMOUS = 64
"""Limit in edges of the result, above which a box filter runs before the resize.

At this scale the box filter is not visible, and resizing a line of millions of pixels would take gigabytes.
"""

_LONGEST = 100
"""Limit of the longer edge of a cropped image, in shorter edges."""

ResizeMode = Literal["stretch", "pad", "crop"]
"""How an image becomes a square view: stretched, padded to a square (LLaVA), or the central square."""


def make_views(image: "Image", layout: ImageLayout, resize_mode: ResizeMode = "stretch") -> Views:
    """Return a view of the whole image, and its tiles in reading order if the image is larger than a view.

    For tiling, the image is stretched to the smallest grid of tiles that keeps its longer edge (at most `max_tiles`
    along it) and about its aspect ratio. `resize_mode` applies to the view of the whole image.
    """
    views, tile_positions = [_whole_view(image, layout, resize_mode)], [0]
    rows, columns = tile_grid(image.height, image.width, layout)
    if rows * columns > 1:
        sheet = resize(image, columns * layout.size, rows * layout.size)
        for row in range(rows):
            for column in range(columns):
                top, left = row * layout.size, column * layout.size
                views.append(sheet[top : top + layout.size, left : left + layout.size])
                tile_positions.append(1 + row * layout.max_tiles + column)
    pixels = np.ascontiguousarray(np.stack(views).transpose(0, 3, 1, 2))
    return Views(pixels, np.array(tile_positions, np.int64))


def tile_grid(height: int, width: int, layout: ImageLayout) -> tuple[int, int]:
    """Return the rows and columns of tiles of an image; (1, 1) if it is not tiled."""
    longer = max(height, width)
    # Tiles along the longer edge, as many as it fills; the shorter edge gets tiles in proportion, rounded up.
    max_tiles = min(layout.max_tiles, -(-longer // layout.size))
    rows, columns = (-(-edge * max_tiles // longer) for edge in (height, width))
    return rows, columns


def empty_views(layout: ImageLayout) -> Views:
    """Return the views of a sample without an image."""
    order = None if layout.tiling == "tile_positions" else np.zeros(0, np.int64)
    return Views(np.zeros((0, 3, layout.size, layout.size), np.uint8), np.zeros(0, np.int64), order)


def concat_views(views: Sequence[Views], layout: ImageLayout) -> Views:
    """Concatenate the views of several images."""
    # The empty views define shapes and dtypes if there is no image.
    pixels, tile_positions, orders = zip(empty_views(layout), *views, strict=True)
    order = (
        None
        if layout.tiling == "tile_positions"
        else _concat_orders(orders, [len(part) for part in tile_positions], layout)
    )
    return Views(np.concatenate(pixels), np.concatenate(tile_positions), order)


def _concat_orders(
    orders: Sequence[NDArray[np.int64] | None], views: Sequence[int], layout: ImageLayout
) -> NDArray[np.int64]:
    """Concatenate the orders of several images, whose features are numbered consecutively."""
    shifts = np.cumsum([0, *views[:-1]]) * layout.tokens
    parts = [order for order in orders if order is not None]
    assert len(parts) == len(orders), "views of another tiling than the layout's"
    # All images share the learned vectors, whose indices come first; only indices of features are shifted.
    return np.concatenate(
        [order + shift * (order >= layout.num_learned) for order, shift in zip(parts, shifts, strict=True)]
    )


def collate_views(samples: Sequence[Views], layout: ImageLayout) -> Images:
    """Batch the views of several samples; without samples, the batch has one sample without views."""
    pixels, tile_positions, order = concat_views(samples, layout)
    views = [len(sample.tile_positions) for sample in samples] or [0]
    images = Images(torch.from_numpy(pixels), torch.from_numpy(tile_positions), torch.tensor(views, dtype=torch.int64))
    if order is None:
        return images
    counts = [0 if sample.order is None else len(sample.order) for sample in samples] or [0]
    return images._replace(order=FeatureOrder(torch.from_numpy(order), torch.tensor(counts, dtype=torch.int64)))


def _whole_view(image: "Image", layout: ImageLayout, resize_mode: ResizeMode) -> NDArray[np.uint8]:
    if resize_mode == "stretch" or image.width == image.height:
        return resize(image, layout.size, layout.size)
    return _pad(image.convert("RGB"), layout) if resize_mode == "pad" else _crop(image.convert("RGB"), layout.size)


def _pad(image: "Image", layout: ImageLayout) -> NDArray[np.uint8]:
    """Pad an image to a square and resize it (LLaVA).

    It works strip by strip, because the square around a very long image would not fit memory.
    """
    from PIL import Image
    from PIL.Image import Resampling

    longer, size = max(image.size), layout.size
    factor = longer // (_LARGE * size)
    if factor > 1:  # padding a photo of 60 million pixels, or a very long image, would take minutes
        image = image.reduce((min(factor, image.width), min(factor, image.height)))
        longer = max(image.size)
    left, top = (longer - image.width) // 2, (longer - image.height) // 2
    narrow, rows = Image.new("RGB", (size, longer), layout.background), max(1, _STRIP // longer)
    for start in range(0, image.height, rows):
        part = image.crop((0, start, image.width, min(start + rows, image.height)))
        strip = Image.new("RGB", (longer, part.height), layout.background)
        strip.paste(part, (left, 0))
        narrow.paste(strip.resize((size, part.height), Resampling.BICUBIC), (0, top + start))
    return resize(narrow, size, size)


def _crop(image: "Image", size: int) -> NDArray[np.uint8]:
    """Resize an image to a shorter edge of `size` and return the central square (CLIP)."""
    # Crop a very long image before the resize, which would otherwise produce an enormous image.
    image = _middle(image, *(min(edge, _LONGEST * min(image.size)) for edge in image.size))
    width, height = (int(size * edge / min(image.size)) for edge in image.size)
    sheet = resize(image, width, height)
    left, top = (width - size) // 2, (height - size) // 2
    return sheet[top : top + size, left : left + size]


def _middle(image: "Image", width: int, height: int) -> "Image":
    left, top = (image.width - width) // 2, (image.height - height) // 2
    return image.crop((left, top, left + width, top + height))


def _reduction(edge: int, target: int) -> int:
    """Return the integer factor by which an enormous edge is reduced before the resize."""
    return edge // (_LARGE * target) if edge > _ENORMOUS * target else 1


def resize(image: "Image", width: int, height: int) -> NDArray[np.uint8]:
    """Return an image as [height, width, 3], resized with a bicubic filter."""
    from PIL.Image import Resampling

    factors = _reduction(image.width, width), _reduction(image.height, height)
    image = image.convert("RGB").reduce(factors) if max(factors) > 1 else image.convert("RGB")
    if image.size != (width, height):
        image = image.resize((width, height), Resampling.BICUBIC)
    return np.asarray(image, np.uint8)

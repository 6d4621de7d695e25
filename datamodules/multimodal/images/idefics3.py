"""Cuts images into the views of Idefics3ForConditionalGeneration of transformers, and orders their features as it does.

The longer edge of an image is enlarged or reduced to `max_tiles` tiles, its shorter edge in proportion, rounded up to
whole tiles. The tiles precede a view of the whole image. Learned vectors frame each view and name its place, and
line breaks end the rows of tiles: in the chat of transformers these are special tokens and texts. See Laurençon et al.,
"Building and better understanding vision-language models" (arXiv 2408.12637).
"""

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from datamodules.multimodal.batch import ImageLayout
from datamodules.multimodal.images.tiling import Views, resize

if TYPE_CHECKING:
    from PIL.Image import Image

FRAME = 0
"""Learned vector around each view."""

WHOLE = 1
"""Learned vector before the view of the whole image; the vectors of the tiles follow in reading order."""


def idefics3_views(image: "Image", layout: ImageLayout) -> Views:
    """Return the tiles in reading order and a view of the whole image, with the order of their features."""
    from PIL import Image

    size = layout.size
    rows, columns = idefics3_grid(image.height, image.width, layout)
    if rows * columns == 0:
        pixels = resize(image, size, size)[None]
    else:
        reduced = Image.fromarray(resize(image, *_reduced_size(image.width, image.height, layout)))
        sheet = resize(reduced, columns * size, rows * size)
        # [rows, size, columns, size, 3] -> [rows * columns, size, size, 3]
        tiles = sheet.reshape(rows, size, columns, size, 3).swapaxes(1, 2).reshape(-1, size, size, 3)
        pixels = np.concatenate([tiles, resize(Image.fromarray(sheet), size, size)[None]])
    tile_positions = [*(1 + row * layout.max_tiles + column for row in range(rows) for column in range(columns)), 0]
    return Views(
        np.ascontiguousarray(pixels.transpose(0, 3, 1, 2)),
        np.array(tile_positions, np.int64),
        _order(rows, columns, layout),
    )


def idefics3_grid(height: int, width: int, layout: ImageLayout) -> tuple[int, int]:
    """Return the rows and columns of tiles of an image; (0, 0) if images are not tiled."""
    if layout.max_tiles == 1:
        return 0, 0
    reduced_width, reduced_height = _reduced_size(width, height, layout)
    ratio = reduced_width / reduced_height
    if reduced_width >= reduced_height:
        columns = -(-reduced_width // layout.size)
        # Truncated before it is rounded up, as in transformers; any other order may differ by a tile.
        return math.ceil(int(columns * layout.size / ratio) / layout.size), columns
    rows = -(-reduced_height // layout.size)
    return rows, math.ceil(int(rows * layout.size * ratio) / layout.size)


def idefics3_pieces(rows: int, columns: int, layout: ImageLayout) -> tuple[int | str, ...]:
    """Return the placeholders of an image with a grid of tiles, and the texts between them (see ChatItem)."""
    # The frame and the vector of its place precede the features of a view; another frame follows the last view.
    view = 2 + layout.tokens
    whole_image = view + 1
    if rows * columns == 0:
        return (whole_image,)
    lines = (piece for _ in range(rows - 1) for piece in (columns * view, "\n"))
    return (*lines, columns * view, "\n\n", whole_image)


def _reduced_size(width: int, height: int, layout: ImageLayout) -> tuple[int, int]:
    """Return the width and height of an image that is resized so that its longer edge fits the tiles exactly.

    The shorter edge is even, as in transformers.
    """
    longest, ratio = layout.max_tiles * layout.size, width / height
    if width >= height:
        shorter = int(longest / ratio)
        return longest, max(1, shorter + shorter % 2)
    shorter = int(longest * ratio)
    return max(1, shorter + shorter % 2), longest


def _order(rows: int, columns: int, layout: ImageLayout) -> NDArray[np.int64]:
    """Return the order of the features of an image, as in FeatureOrder."""
    names = [WHOLE + 1 + row * layout.max_tiles + column for row in range(rows) for column in range(columns)]
    features = layout.num_learned + np.arange((1 + rows * columns) * layout.tokens).reshape(-1, layout.tokens)
    views = [[FRAME, name, *view] for name, view in zip([*names, WHOLE], features.tolist(), strict=True)]
    return np.array([*(index for view in views for index in view), FRAME], np.int64)

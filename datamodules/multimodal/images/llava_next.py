"""Cuts images into the views of LlavaNextForConditionalGeneration of transformers, and orders their features alike.

A view of the whole image, stretched, precedes the tiles. The tiles are an image of unchanged aspect ratio on a black
sheet. Their features form one grid. The rows or columns of the sheet's black edges are removed from it, and a learned
vector ends each line. See Liu et al., "LLaVA-NeXT: Improved reasoning, OCR, and world knowledge" (2024).
"""

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from datamodules.multimodal.batch import ImageLayout
from datamodules.multimodal.images.tiling import Views, resize

if TYPE_CHECKING:
    from PIL.Image import Image

LINE_END = 0
"""Learned vector at the end of a line of features."""


def llava_next_views(image: "Image", layout: ImageLayout) -> Views:
    """Return a view of the whole image and its tiles in reading order, with the order of their features."""
    size = layout.size
    rows, columns = llava_next_grid(image.height, image.width, layout)
    sheet = _sheet(image, rows * size, columns * size)
    # [rows, size, columns, size, 3] -> [rows * columns, size, size, 3]
    tiles = sheet.reshape(rows, size, columns, size, 3).swapaxes(1, 2).reshape(-1, size, size, 3)
    pixels = np.concatenate([resize(image, size, size)[None], tiles]).transpose(0, 3, 1, 2)
    tile_positions = [0, *(1 + row * layout.max_tiles + column for row in range(rows) for column in range(columns))]
    order = llava_next_order(image.height, image.width, layout)
    return Views(np.ascontiguousarray(pixels), np.array(tile_positions, np.int64), order)


def llava_next_grid(height: int, width: int, layout: ImageLayout) -> tuple[int, int]:
    """Return the rows and columns of tiles of an image.

    The grid is chosen that keeps the most pixels of the image, the smallest grid if several are equal.
    """
    best, sheet = (-1, 0), (1, 1)
    for sheet_height, sheet_width in layout.grid_resolutions:
        scale = min(sheet_width / width, sheet_height / height)
        kept_pixels = min(int(width * scale) * int(height * scale), width * height)
        # Most pixels first, then the least black area.
        if (kept_pixels, kept_pixels - sheet_height * sheet_width) > best:
            best, sheet = (kept_pixels, kept_pixels - sheet_height * sheet_width), (sheet_height, sheet_width)
    return sheet[0] // layout.size, sheet[1] // layout.size


def llava_next_order(height: int, width: int, layout: ImageLayout) -> NDArray[np.int64]:
    """Return the order of the features of an image, as in FeatureOrder."""
    edge, tokens = math.isqrt(layout.tokens), layout.tokens
    rows, columns = llava_next_grid(height, width, layout)
    # Features of the whole image have the numbers 0 to tokens - 1; tiles follow, as [row, column, line, place].
    tiles = tokens + np.arange(rows * columns * tokens).reshape(rows, columns, edge, edge)
    grid = layout.num_learned + _without_edges(tiles.swapaxes(1, 2).reshape(rows * edge, columns * edge), height, width)
    lines = np.concatenate([grid, np.full((len(grid), 1), LINE_END)], axis=1)
    return np.concatenate([layout.num_learned + np.arange(tokens), lines.ravel()]).astype(np.int64)


def _sheet(image: "Image", height: int, width: int) -> NDArray[np.uint8]:
    """Return an image in the middle of a black sheet [height, width, 3], as large as it fits."""
    scale_width, scale_height = width / image.width, height / image.height
    if scale_width < scale_height:
        inner_width, inner_height = width, min(math.ceil(image.height * scale_width), height)
    else:
        inner_width, inner_height = min(math.ceil(image.width * scale_height), width), height
    left, top = (width - inner_width) // 2, (height - inner_height) // 2
    sheet = np.zeros((height, width, 3), np.uint8)
    sheet[top : top + inner_height, left : left + inner_width] = resize(image, inner_width, inner_height)
    return sheet


def _without_edges(grid: NDArray[np.int64], height: int, width: int) -> NDArray[np.int64]:
    """Remove the rows or columns of a grid that an image of this aspect ratio leaves black, as many on both sides."""
    rows, columns = grid.shape
    if width / height > columns / rows:
        # Rounded to 7 decimals as in transformers, so that 23.99999999 counts as 24.
        edge = (rows - int(round(height * (columns / width), 7))) // 2
        return grid[edge : rows - edge]
    edge = (columns - int(round(width * (rows / height), 7))) // 2
    return grid[:, edge : columns - edge]

"""Computes occlusion maps: covers one part of a picture after another, and colors the parts that matter.

Zeiler and Fergus, "Visualizing and Understanding Convolutional Networks", ECCV 2014, section 4.2.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from PIL.Image import Image

CELLS = 6
"""Parts of a picture along each edge."""

_STRONGEST = 0.65
"""Opacity of the red of the part that matters most."""


def occlude(image: "Image") -> Iterator["Image"]:
    """Yield the picture with each of its CELLS x CELLS parts in the mean color, row by row."""
    mean = tuple(int(value) for value in np.asarray(image).reshape(-1, 3).mean(0))
    for row in range(CELLS):
        for column in range(CELLS):
            part = image.copy()
            part.paste(mean, _box(image, row, column))
            yield part


def draw_occlusion_map(image: "Image", lost: NDArray[np.floating]) -> "Image":
    """Return the picture with parts in red, the more the larger their value.

    Args:
        image: an RGB picture.
        lost: [CELLS, CELLS], not negative.
    """
    from PIL import Image

    shown, red = image.copy(), Image.new("RGB", image.size, (220, 30, 30))
    mask = Image.new("L", image.size, 0)
    largest = float(lost.max())
    for row in range(CELLS):
        for column in range(CELLS):
            share = float(lost[row, column]) / largest if largest > 0 else 0.0
            mask.paste(round(255 * _STRONGEST * share), _box(image, row, column))
    shown.paste(red, mask=mask)
    return shown


def describe_part(lost: NDArray[np.floating]) -> str:
    """Describe the position of the part with the largest value [CELLS, CELLS], for those who do not see the picture."""
    if not lost.max() > 0:
        return "no part is red"
    row, column = np.unravel_index(lost.argmax(), lost.shape)
    return f"the reddest part: row {row + 1} of {CELLS} from the top, column {column + 1} of {CELLS} from the left"


def _box(image: "Image", row: int, column: int) -> tuple[int, int, int, int]:
    def at(part: int, length: int) -> int:
        return part * length // CELLS

    width, height = image.size
    # Rounded down at both ends, so that the parts cover the picture without overlap, whatever its size.
    return at(column, width), at(row, height), at(column + 1, width), at(row + 1, height)

"""An image of an evaluation as it is shown: its class, and what it was taken for."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.examples import Example
from engine.pictures import png


class ShownImage(NamedTuple):
    label: int  # -1 where the class is not known
    predicted: int
    probability: float


def example(name: str, pixels: NDArray[np.uint8], shown: ShownImage, classes: Sequence[str]) -> Example:
    """
    Args:
        pixels: [C, H, W], grey or RGB.
    """
    from PIL import Image

    known = shown.label >= 0
    return Example(
        name=name,
        question="",
        expected=classes[shown.label] if known else "",
        answer=f"{classes[shown.predicted]} ({shown.probability:.0%})",
        right=shown.predicted == shown.label if known else None,
        picture=png(Image.fromarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0))),
    )

"""Renders previews of images in an evaluation: the class and the prediction."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.telemetry.image_grid import encode_png_grid
from engine.telemetry.sample_previews import SamplePreview


class ImagePreview(NamedTuple):
    """Result of an image in a preview."""

    label: int  # -1 if the class is unknown
    predicted: int
    probability: float


def example(name: str, pixels: NDArray[np.uint8], shown: ImagePreview, classes: Sequence[str]) -> SamplePreview:
    """Render the preview of an image.

    Args:
        name: name of the image.
        pixels: [C, H, W], grey or RGB.
        shown: result of the image.
        classes: names of the K classes.
    """
    from PIL import Image

    known = shown.label >= 0
    return SamplePreview(
        name=name,
        question="",
        expected=classes[shown.label] if known else "",
        answer=f"{classes[shown.predicted]} ({shown.probability:.0%})",
        right=shown.predicted == shown.label if known else None,
        picture=encode_png_grid(Image.fromarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0))),
    )

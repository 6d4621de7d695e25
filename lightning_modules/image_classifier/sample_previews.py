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


def render_preview(
    name: str, pixels: NDArray[np.uint8], preview: ImagePreview, classes: Sequence[str]
) -> SamplePreview:
    """Render the preview of an image.

    Args:
        name: name of the image.
        pixels: [C, H, W], gray or RGB.
        preview: result of the image.
        classes: names of the K classes.
    """
    from PIL import Image

    has_label = preview.label >= 0
    return SamplePreview(
        name=name,
        question="",
        expected=classes[preview.label] if has_label else "",
        answer=f"{classes[preview.predicted]} ({preview.probability:.0%})",
        right=preview.predicted == preview.label if has_label else None,
        picture=encode_png_grid(Image.fromarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0))),
    )

"""Replaces the images of a batch by black images, for the blind baseline."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

_PIXELS = "pixel_values"


def blinded(images: Mapping[str, Tensor], black: Sequence[float]) -> dict[str, Tensor]:
    """Return as many black images of the same sizes.

    Args:
        images: inputs of the model. Their pixels are [..., 3, height, width], or [patches, 3 * pixels of a patch].
        black: a black pixel after normalization, one value per channel.
    """
    if _PIXELS not in images:
        return dict(images)
    pixels = images[_PIXELS]
    channels = pixels.new_tensor(black)
    # Qwen2-VL: [patches, 3 * pixels of a patch], channel by channel
    if pixels.ndim == 2:
        dark = channels.repeat_interleave(pixels.shape[1] // len(black)).expand_as(pixels)
    else:
        dark = channels[:, None, None].expand_as(pixels)
    if pixels.ndim > 4:  # zeros fill the places of a batch that hold no image
        dark = torch.where((pixels != 0).flatten(-3).any(-1)[..., None, None, None], dark, pixels)
    # `expand_as` shares memory between pixels, which kernels that view their input refuse.
    return {**images, _PIXELS: dark.contiguous()}


class BlackImages:
    """Blinds batches of images, see `blinded`.

    Args:
        black: a black pixel after normalization.
    """

    def __init__(self, black: Sequence[float]) -> None:
        self.black = tuple(black)

    def blinded(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return as many black images of the same sizes."""
        return blinded(inputs, self.black)

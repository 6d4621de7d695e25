"""Replaces the images of a batch by black images, for the blind baseline."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

_PIXELS = "pixel_values"


class BlackImages:
    """Blinds batches of images: replaces each image by a black one.

    Args:
        black: a black pixel after normalization, one value per channel.
    """

    def __init__(self, black: Sequence[float]) -> None:
        self.black = tuple(black)

    def blinded(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return as many black images of the same sizes.

        Args:
            inputs: inputs of the model. Their pixels are [..., 3, height, width], or [patches, 3 * pixels of a patch].
        """
        if _PIXELS not in inputs:
            return dict(inputs)
        pixels = inputs[_PIXELS]
        channels = pixels.new_tensor(self.black)
        # Qwen2-VL: [patches, 3 * pixels of a patch], channel by channel
        if pixels.ndim == 2:
            dark = channels.repeat_interleave(pixels.shape[1] // len(self.black)).expand_as(pixels)
        else:
            dark = channels[:, None, None].expand_as(pixels)
        if pixels.ndim > 4:  # zeros fill the places of a batch that hold no image
            dark = torch.where((pixels != 0).flatten(-3).any(-1)[..., None, None, None], dark, pixels)
        # `expand_as` shares memory between pixels, which kernels that view their input refuse.
        return {**inputs, _PIXELS: dark.contiguous()}

"""Averages the class probabilities of an image over small shifts."""

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import pad

MAX_SHIFT = 8
"""Largest shift: 289 copies of an image in a forward pass."""

_BLACK = -1.0
"""Value of a black pixel in images that are scaled to [-1, 1], as in the random crops of the training."""


def average_over_shifts(network: Callable[[Tensor], Tensor], pixels: Tensor, shift: int) -> Tensor:
    """Return logits of the mean class probabilities over all shifts of an image by up to `shift` pixels.

    Test-time augmentation with the crops of Krizhevsky et al., "ImageNet Classification with Deep Convolutional Neural
    Networks", NeurIPS 2012, section 4.1. All copies of a batch run in one forward pass.

    Args:
        network: [B, C, H, W] -> logits [B, K]. In a batch, an image must not change the logits of another.
        pixels: [B, C, H, W], scaled to [-1, 1].
        shift: largest shift in each of the four directions; 0 for the logits themselves.

    Returns:
        [B, K] float32. With a shift they are logarithms of probabilities, so their softmax is the mean.
    """
    if not shift:
        return network(pixels).float()
    height, width = pixels.shape[2:]
    # [B, C, H + 2 shift, W + 2 shift], of which each copy is a crop
    framed, offsets = pad(pixels, [shift] * 4, value=_BLACK), range(2 * shift + 1)
    copies = [framed[:, :, down : down + height, across : across + width] for down in offsets for across in offsets]
    logits = network(torch.cat(copies)).float()
    shares = logits.log_softmax(1).unflatten(0, (len(copies), -1))  # [shifts, B, K]
    # log(1/n sum_i p_i), computed from logarithms, so that small probabilities do not become 0.
    return shares.logsumexp(0) - math.log(len(copies))

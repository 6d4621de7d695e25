"""Augments and normalizes a whole batch, on the device."""

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample, one_hot, pad

from datamodules.image_classifier.batch import ClassifierImages
from datamodules.image_classifier.dataset import RANDOM_BITS, RawImages


class Augmentation(NamedTuple):
    """Random changes of training images; each is off by default.

    Attributes:
        crop_padding: largest shift, in pixels.
        flip: flip horizontally with probability 0.5.
        rotation: largest rotation in either direction, in degrees.
        scaling: largest change of the size, as a fraction.
    """

    crop_padding: int = 0
    flip: bool = False
    rotation: float = 0.0
    scaling: float = 0.0


def prepare_batch(raw: RawImages, classes: int, augmentation: Augmentation) -> ClassifierImages:
    """Augment and mix images (as far as the batch has random numbers for it) and scale pixels to [-1, 1].

    Mixup as in Zhang et al., "mixup: Beyond Empirical Risk Minimization", ICLR 2018, with one weight per batch.
    """
    pixels, labels = raw.pixels.flatten(0, 1), raw.labels
    if raw.random is not None:
        # The random numbers are drawn with the sample on the CPU, so an image has the same changes on any device.
        uniform = raw.random.flatten(0, 1).float() / 2**RANDOM_BITS
        pixels = random_crop_and_flip(pixels, uniform[:, :3], augmentation.crop_padding, augmentation.flip)
        if augmentation.rotation or augmentation.scaling:
            pixels = random_rotation_and_scale(pixels, uniform[:, 3:], augmentation.rotation, augmentation.scaling)
    pixels = pixels.unflatten(0, labels.shape).float() / 127.5 - 1
    # Label -1 (unknown or padding) is not a class: its row of targets is 0.
    targets = one_hot(labels.clamp(min=0), classes) * (labels >= 0)[..., None]
    shares = raw.shares.float() / raw.shares.float().sum()  # under mixed precision Lightning rounds them to bfloat16
    return ClassifierImages(
        torch.einsum("bvchw,v->bchw", pixels, shares),
        torch.einsum("bvk,v->bk", targets.float(), shares),
        labels[:, 0],
        raw.samples,
    )


def random_crop_and_flip(pixels: Tensor, uniform: Tensor, padding: int, flip: bool) -> Tensor:
    """Crop zero-padded images at random, and flip them horizontally at random.

    As in He et al., "Deep Residual Learning for Image Recognition", CVPR 2016, section 4.2.

    Args:
        pixels: [B, C, H, W].
        uniform: [B, 3] random numbers in [0, 1): vertical offset, horizontal offset, and whether to flip.
        padding: width of the padding, in pixels.
        flip: whether to flip at all.

    Returns:
        [B, C, H, W].
    """
    (_, _, height, width), device = pixels.shape, pixels.device
    down, across = (uniform[:, :2] * (2 * padding + 1)).long().unbind(1)
    columns = torch.arange(width, device=device).expand(len(pixels), -1)
    if flip:
        columns = torch.where(uniform[:, 2:] < 0.5, columns.flip(1), columns)
    rows = torch.arange(height, device=device) + down[:, None]
    images = torch.arange(len(pixels), device=device)[:, None, None]
    # Index tensors on both sides of a slice come first in the result: [B, H, W, C].
    framed = pad(pixels, [padding] * 4)
    return framed[images, :, rows[:, :, None], (columns + across[:, None])[:, None]].permute(0, 3, 1, 2)


def random_rotation_and_scale(pixels: Tensor, uniform: Tensor, rotation: float, scaling: float) -> Tensor:
    """Rotate and resize images about their center, with bilinear interpolation and black beyond the border.

    Args:
        pixels: [B, C, H, W] in [0, 255].
        uniform: [B, 2] random numbers in [0, 1): rotation, and size.
        rotation: largest angle in either direction, in degrees.
        scaling: largest change of the size, as a fraction.

    Returns:
        [B, C, H, W] float32.
    """
    angle, change = (2 * uniform - 1).unbind(1)
    angle, size = math.radians(rotation) * angle, 1 + scaling * change
    ratio = pixels.shape[2] / pixels.shape[3]  # the grid's coordinates run from -1 to 1 in both directions
    cosine, sine = torch.cos(angle) / size, torch.sin(angle) / size
    zero = torch.zeros_like(angle)
    rows = [torch.stack([cosine, -sine * ratio, zero], 1), torch.stack([sine / ratio, cosine, zero], 1)]
    grid = affine_grid(torch.stack(rows, 1), list(pixels.shape), align_corners=False)
    return grid_sample(pixels.float(), grid, align_corners=False)

"""Defines the batch of the image classifier."""

from typing import NamedTuple

from torch import Tensor


class ClassifierImages(NamedTuple):
    """B images of the same size, with their labels."""

    pixels: Tensor  # [B, C, H, W] float32 in [-1, 1]
    targets: Tensor  # [B, K] float32: weight of each class, two with mixup; zeros for unlabeled images
    labels: Tensor  # [B] int64: class index; -1 for unlabeled images and padding rows
    samples: Tensor  # [B] int64: index in the data set, PADDING_INDEX for a padding row

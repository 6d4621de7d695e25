"""What an image classifier's batch holds."""

from typing import NamedTuple

from torch import Tensor


class Images(NamedTuple):
    """B images of one size, with what they show."""

    pixels: Tensor  # [B, C, H, W] float32 in [-1, 1]
    targets: Tensor  # [B, K] float32: share of each class, one or two (mixup) of them; zeros where nothing is known
    labels: Tensor  # [B] int64: the class; -1 where it is not known, and in a filler row
    samples: Tensor  # [B] int64: place in the data set, FILLER for a row that holds no sample

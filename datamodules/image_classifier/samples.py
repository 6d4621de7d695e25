"""A source of images as a data set: what is loaded of it, and which random numbers go with a sample."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from datamodules.image_classifier.sources import ImageSource
from engine.randomness import global_seed, hash_bits, hash_integers, hash_uniform
from engine.sampling import FILLER, Draw

_CROP, _PARTNER, _SHARE = 0xC409, 0x9A47, 0x54A4  # names of what is drawn, beside others that hash the same seed


class RawImages(NamedTuple):
    """B samples as they come from the loader; each has V images: itself and, with mixup, the one that is mixed in."""

    pixels: Tensor  # [B, V, C, H, W] uint8
    labels: Tensor  # [B, V] int64
    shares: Tensor  # [V] float32: how much of each image a sample consists of; they sum to 1
    uniform: Tensor | None  # [B, V, 3] float32 in [0, 1): for crop and flip; None where nothing is to be random
    samples: Tensor  # [B] int64


class ImageSamples:
    """See engine.datamodule.BatchedDataset.

    Which image is mixed in depends on (seed, epoch, sample) and by how much on (seed, epoch, global batch), never on
    which samples a process computes together: so any number of processes trains the same.

    Args:
        random: whether the images are to be augmented.
        mixup: parameter of the distribution Beta(mixup, mixup) of the shares; 0 mixes nothing in.
    """

    def __init__(self, source: ImageSource, random: bool = False, mixup: float = 0.0) -> None:
        self.source, self.random, self.mixup = source, random, mixup

    def __len__(self) -> int:
        return len(self.source.labels)

    def __getitem__(self, draw: Draw) -> RawImages:
        coordinates = global_seed(), draw.epoch
        rows, shares = draw.indices[:, None], [1.0]
        if self.mixup:
            partners = hash_integers(len(self), *coordinates, draw.indices, _PARTNER)
            rows = np.stack([draw.indices, partners], axis=1)
            seed = int(hash_bits(*coordinates, draw.number, _SHARE))
            share = np.random.default_rng(seed).beta(self.mixup, self.mixup)
            shares = [share, 1 - share]
        real = np.where(rows == FILLER, 0, rows)
        pixels = self.source.read(real.ravel())
        uniform = None
        if self.random:
            places = draw.indices[:, None, None], np.arange(rows.shape[1])[:, None], np.arange(3)
            uniform = torch.from_numpy(hash_uniform(*coordinates, *places, _CROP).astype(np.float32))
        return RawImages(
            torch.from_numpy(pixels.reshape(*rows.shape, *pixels.shape[1:])),
            torch.from_numpy(np.where(draw.indices[:, None] == FILLER, -1, self.source.labels[real])),
            torch.tensor(shares),
            uniform,
            torch.from_numpy(draw.indices),
        )

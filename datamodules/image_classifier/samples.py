"""A source of images as a data set: what is loaded of it, and which random numbers go with a sample."""

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from datamodules.image_classifier.sources import ImageSource
from engine.bad_sample import BadSample
from engine.randomness import global_seed, hash_bits, hash_integers
from engine.sampling import FILLER, Draw

RANDOM_BITS = 24
"""Bits of a number that crops and flips are drawn by: as many as float32 holds without rounding up to 1."""

_CROP, _PARTNER, _SHARE = 0xC409, 0x9A47, 0x54A4  # names of what is drawn, beside others that hash the same seed


class RawImages(NamedTuple):
    """B samples as they come from the loader; each has V images: itself and, with mixup, the one that is mixed in.

    Those of a filler are black, and no file is read for it.
    """

    pixels: Tensor  # [B, V, C, H, W] uint8
    labels: Tensor  # [B, V] int64
    shares: Tensor  # [V] float32: how much of each image a sample consists of; they sum to 1
    # For crop and flip; None where nothing is to be random. Integers, as Lightning rounds fractions to bfloat16.
    random: Tensor | None  # [B, V, 3] int64 in [0, 2 ** RANDOM_BITS)
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
        real, shares = draw.indices != FILLER, [1.0]
        rows = draw.indices[real]
        pixels, labels = self.source.read(rows)[:, None], self.source.labels[rows][:, None]
        if self.mixup:
            partners = hash_integers(len(self), *coordinates, rows, _PARTNER)
            others, partners = self._mixed_in(partners, rows, pixels[:, 0])
            pixels = np.stack([pixels[:, 0], others], axis=1)
            labels = self.source.labels[np.stack([rows, partners], axis=1)]
            seed = int(hash_bits(*coordinates, draw.number, _SHARE))
            share = np.random.default_rng(seed).beta(self.mixup, self.mixup)
            shares = [share, 1 - share]
        random = None
        if self.random:
            places = draw.indices[:, None, None], np.arange(len(shares))[:, None], np.arange(3)
            bits = hash_bits(*coordinates, *places, _CROP) >> np.uint64(64 - RANDOM_BITS)
            random = torch.from_numpy(bits.astype(np.int64))
        return RawImages(
            torch.from_numpy(_with_fillers(pixels, real, 0)),
            torch.from_numpy(_with_fillers(labels, real, -1)),
            torch.tensor(shares),
            random,
            torch.from_numpy(draw.indices),
        )

    def _mixed_in(
        self, partners: NDArray[np.int64], rows: NDArray[np.int64], own: NDArray[np.uint8]
    ) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """The images of the partners, and which they are: of a sample whose partner cannot be read, itself.

        So nothing is left out but what is damaged; that is told of where it is drawn itself, once in every epoch.
        """
        try:
            return self.source.read(partners), partners
        except BadSample:
            pixels, partners = own.copy(), partners.copy()
        for place, partner in enumerate(partners.tolist()):
            try:
                pixels[place] = self.source.read(np.array([partner]))[0]
            except BadSample:
                partners[place] = rows[place]
        return pixels, partners


def _with_fillers(values: NDArray[Any], real: NDArray[np.bool_], filler: int) -> NDArray[Any]:
    """[B, ...] with `values` in the rows that hold a sample."""
    rows = np.full((len(real), *values.shape[1:]), filler, values.dtype)
    rows[real] = values
    return rows

"""Loads micro-batches of an image source with their random numbers."""

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from datamodules.image_classifier.sources.image_source import ImageSource
from engine.data.errors import BadSampleError
from engine.data.samplers import PADDING_INDEX, MicroBatchRequest
from engine.determinism.stateless_rng import global_seed, hash_bits, hash_integers

RANDOM_BITS = 24
"""Bits of the random numbers for augmentation: float32 represents them without rounding up to 1."""

NUMBERS = 5
"""Random numbers for each image: vertical and horizontal shift, flip, rotation, scale."""

_CROP, _PARTNER, _SHARE = 0xC409, 0x9A47, 0x54A4  # identifiers of random streams


class RawImages(NamedTuple):
    """B samples as loaded; each has V images: its own and, with mixup, its partner.

    Images of padding rows are black.
    """

    pixels: Tensor  # [B, V, C, H, W] uint8
    labels: Tensor  # [B, V] int64
    shares: Tensor  # [V] float32: mixup weights, which sum to 1
    # None without augmentation. Integers, because Lightning casts floats to bfloat16.
    random: Tensor | None  # [B, V, NUMBERS] int64 in [0, 2 ** RANDOM_BITS)
    samples: Tensor  # [B] int64


class ImageDataset:
    """A BatchedDataset (see engine.data.batched_dataset) of an image source.

    The mixup partner depends on (seed, epoch, sample), the weight on (seed, epoch, global batch). Neither depends on
    the distribution of samples over ranks, so training is the same at any world size.

    Args:
        source: the images.
        random: draw random numbers for augmentation.
        mixup: parameter of the distribution Beta(mixup, mixup) of mixup weights; 0 for no mixup.
    """

    def __init__(self, source: ImageSource, random: bool = False, mixup: float = 0.0) -> None:
        self.source, self.random, self.mixup = source, random, mixup

    def __len__(self) -> int:
        return len(self.source.labels)

    def __getitem__(self, request: MicroBatchRequest) -> RawImages:
        coordinates = global_seed(), request.epoch
        real, shares = request.indices != PADDING_INDEX, [1.0]
        rows = request.indices[real]
        pixels, labels = self.source.read(rows)[:, None], self.source.labels[rows][:, None]
        if self.mixup:
            partners = hash_integers(len(self), *coordinates, rows, _PARTNER)
            others, partners = self._load_partners(partners, rows, pixels[:, 0])
            pixels = np.stack([pixels[:, 0], others], axis=1)
            labels = self.source.labels[np.stack([rows, partners], axis=1)]
            seed = int(hash_bits(*coordinates, request.step_in_epoch, _SHARE))
            share = np.random.default_rng(seed).beta(self.mixup, self.mixup)
            shares = [share, 1 - share]
        random = None
        if self.random:
            counters = request.indices[:, None, None], np.arange(len(shares))[:, None], np.arange(NUMBERS)
            bits = hash_bits(*coordinates, *counters, _CROP) >> np.uint64(64 - RANDOM_BITS)
            random = torch.from_numpy(bits.astype(np.int64))
        return RawImages(
            torch.from_numpy(_pad_rows(pixels, real, 0)),
            torch.from_numpy(_pad_rows(labels, real, -1)),
            torch.tensor(shares),
            random,
            torch.from_numpy(request.indices),
        )

    def _load_partners(
        self, partners: NDArray[np.int64], rows: NDArray[np.int64], own: NDArray[np.uint8]
    ) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """Load mixup partners; return their images and indices. An unreadable partner is replaced by the sample itself.

        The unreadable image is reported when it is drawn as a sample, once per epoch.
        """
        try:
            return self.source.read(partners), partners
        except BadSampleError:
            pixels, partners = own.copy(), partners.copy()
        for index, partner in enumerate(partners.tolist()):
            try:
                pixels[index] = self.source.read(np.array([partner]))[0]
            except BadSampleError:
                partners[index] = rows[index]
        return pixels, partners


def _pad_rows(values: NDArray[Any], real: NDArray[np.bool_], filler: int) -> NDArray[Any]:
    """Return [B, ...] with `values` in the rows that hold a sample, and `filler` in the others."""
    rows = np.full((len(real), *values.shape[1:]), filler, values.dtype)
    rows[real] = values
    return rows

"""Derives dropout masks from keys: a mask depends on (seed, step, sample, layer, element), not on the rank (CPU).

A mask's bits are a hash of these five. No row's mask depends on the other rows, on padding, or on how a step is split
into ranks, micro-batches and parts of similar length. A training with dropout is therefore the same on any number of
ranks, up to rounding. The hashes cost as much as torch's random numbers.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from engine.determinism.stateless_rng import hash_bits

_DROPOUT, _LAYER, _PLACE = 37, 41, 43  # hash keys; others use other keys with the same seed
_EVERY_ROW = -2  # instead of a sample's index; -1 is a padding row
_MIX_1, _MIX_2 = (int(np.uint64(constant).view(np.int64)) for constant in (0xBF58476D1CE4E5B9, 0x94D049BB133111EB))

# Dictionaries, because a compiler reads them, while it would trace into a cached function and cannot trace uint64.
_position_bits: dict[tuple[int, ...], Tensor] = {}
_layer_keys: dict[tuple[int, int], int] = {}


class DropoutKeys(NamedTuple):
    """Keys of the B rows of a forward pass in a step."""

    rows: Tensor  # [B] int64, of each row's own masks
    step: Tensor  # [1] int64, of masks that all rows of the step share


def dropout_keys(parts: Sequence[Tensor], seed: int, step: int) -> list[DropoutKeys]:
    """Return the keys of the parts of a micro-batch.

    Args:
        parts: [B] int64 numbers of each part's samples, on a CPU.
        seed: seed of the run.
        step: optimizer step.
    """
    samples = np.append(torch.cat(list(parts)).numpy(), _EVERY_ROW)
    keys = torch.from_numpy(hash_bits(seed, _DROPOUT, step, samples).view(np.int64))
    return [DropoutKeys(rows, keys[-1:]) for rows in keys[:-1].split([len(part) for part in parts])]


class KeyedDropoutLayer(nn.Module):
    """Layer that draws dropout masks from keys. `number_layers` numbers the layers, `set_keys` sets the keys."""

    number = 0
    keys: DropoutKeys | None = None
    """Keys of the current forward pass; None: masks come from torch's generator."""

    def row_keys(self, call: int = 0) -> Tensor | None:
        """Return the keys [B] of the rows' masks, or None; `call` numbers the masks of the layer."""
        return None if self.keys is None else self.keys.rows ^ _layer_key(self.number, call)

    def step_key(self, call: int = 0) -> Tensor | None:
        """Return the key [1] of a mask that all rows of the step share, or None; see `row_keys`."""
        return None if self.keys is None else self.keys.step ^ _layer_key(self.number, call)


def number_layers(network: nn.Module) -> list[KeyedDropoutLayer]:
    """Number the masked layers of a network and return them."""
    layers = keyed_dropout_layers(network)
    for number, layer in enumerate(layers):
        layer.number = number
    return layers


def keyed_dropout_layers(network: nn.Module) -> list[KeyedDropoutLayer]:
    """Return the masked layers of a network."""
    return [module for module in network.modules() if isinstance(module, KeyedDropoutLayer)]


def set_keys(layers: Iterable[KeyedDropoutLayer], keys: DropoutKeys | None) -> None:
    """Set the keys of the next masks."""
    for layer in layers:
        layer.keys = keys


def keyed_bits(keys: Tensor, sizes: Sequence[int], first: int = 0) -> Tensor:
    """Return 64 random bits as int64 [B, *sizes] for keys [B].

    Args:
        keys: random int64 numbers.
        sizes: size of each dimension after the first. The bits of an element do not depend on the sizes.
        first: index, in the whole mask, of the first row of the last but one dimension.
    """
    *outer, last = sizes
    if first:
        outer[-1] += first
    bits_of_positions = position_bits(*outer, last)
    bits = keys.view(-1, *[1] * len(sizes)) ^ (bits_of_positions[..., first:, :] if first else bits_of_positions)
    # This is SplitMix64's finalizer with fewer steps, because keys and positions are random already.
    # Overflow of int64 wraps as for uint64; the shift carries high bits to the lowest, which a product leaves weak.
    bits *= _MIX_1
    bits ^= bits >> 32
    bits *= _MIX_2
    return bits


def position_bits(*sizes: int) -> Tensor:
    """Return a random int64 number for each element of a mask [*sizes], which does not depend on the sizes."""
    # Powers of two: histories of many lengths share a few stored grids.
    rounded = tuple(1 << (size - 1).bit_length() for size in sizes)
    if rounded not in _position_bits:
        grid = np.ogrid[tuple(slice(size) for size in rounded)]
        _position_bits[rounded] = torch.from_numpy(hash_bits(_PLACE, *grid).view(np.int64))
    return _position_bits[rounded][tuple(slice(size) for size in sizes)]


def _layer_key(number: int, call: int) -> int:
    if (number, call) not in _layer_keys:
        _layer_keys[number, call] = int(hash_bits(_LAYER, number, call).view(np.int64))
    return _layer_keys[number, call]

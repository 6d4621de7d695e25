"""Drops own vectors of random items in a step (item dropout), so that the features alone must represent them.

After DropoutNet (Volkovs, Yu and Poutanen, "DropoutNet: Addressing Cold Start in Recommender Systems", NeurIPS 2017): a
network that meets such items in the training scores items well that it has never met. Which items lose their vectors is
a hash of (seed, step, item), equal on all ranks and in all micro-batches, and after a resume.
"""

import numpy as np
import torch
from torch import Tensor

from engine.determinism.stateless_rng import hash_bits

_DROPPED_ITEMS = 29  # hash key; others use other keys with the same seed
_GOLDEN, _MIX_1, _MIX_2 = (
    int(np.uint64(constant).view(np.int64)) for constant in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
)


def keeps_own_vector(items: Tensor, share: float, seed: int, step: int) -> Tensor:
    """Return whether items keep their own vectors in a step: bool, of the shape of the items.

    It is `hash_uniform(seed, key, step, items) >= share`, computed on the device of the items.

    Args:
        items: int64 numbers of items, of any shape.
        share: probability that an item loses its vector.
        seed: seed of the run.
        step: optimizer step.
    """
    state = int(hash_bits(seed, _DROPPED_ITEMS, step).view(np.int64))
    bits = (items ^ state) + _GOLDEN  # int64 overflows as uint64 does
    bits = (bits ^ _shift_right(bits, 30)) * _MIX_1
    bits = (bits ^ _shift_right(bits, 27)) * _MIX_2
    bits = bits ^ _shift_right(bits, 31)
    return _shift_right(bits, 11) >= int(share * 2**53)


def _shift_right(bits: Tensor, by: int) -> Tensor:
    """Shift to the right as unsigned numbers."""
    return torch.bitwise_and(bits >> by, (1 << (64 - by)) - 1)

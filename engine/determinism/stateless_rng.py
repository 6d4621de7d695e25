"""Draws random numbers without state: each is a hash of its coordinates, e.g. (seed, epoch, sample).

The state of a generator would have to be saved, and could only be restored on the same number of ranks. The same
coordinates give the same number on any rank, in any worker and after any restart. The mixer is the finalizer of
splitmix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014; constants of
Stafford's variant 13).
"""

import os
from typing import SupportsInt

import numpy as np
import torch
from numpy.typing import NDArray

GOLDEN = 0x9E3779B97F4A7C15
"""Increment of splitmix64: 2^64 divided by the golden ratio."""

_MIX_1, _MIX_2 = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_MASK = 0xFFFFFFFFFFFFFFFF

Coordinate = SupportsInt | NDArray[np.integer]


def hash_bits(*coordinates: Coordinate) -> NDArray[np.uint64]:
    """Return 64 random bits for each tuple of coordinates.

    Args:
        coordinates: integers or integer arrays, which broadcast against each other. Their order matters:
            `hash_bits(1, 2) != hash_bits(2, 1)`.

    Returns:
        Array of the common shape; a number if no coordinate is an array.

    Raises:
        ValueError: there is no coordinate.
    """
    if not coordinates:
        raise ValueError("hash_bits needs at least one coordinate")
    if not any(isinstance(coordinate, np.ndarray) for coordinate in coordinates):
        return np.uint64(_hash_one([int(coordinate) for coordinate in coordinates]))
    # The additions and products wrap modulo 2^64 on purpose.
    state = np.zeros((), np.uint64)
    with np.errstate(over="ignore"):
        for coordinate in coordinates:
            state = mix_bits((state ^ _as_bits(coordinate)) + np.uint64(GOLDEN))
    return state


def mix_bits(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the finalizer of splitmix64 of each number, modulo 2^64: a bijection that mixes all bits."""
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(_MIX_1)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(_MIX_2)
    return bits ^ (bits >> np.uint64(31))


def hash_integers(bound: int | NDArray[np.integer], *coordinates: Coordinate) -> NDArray[np.int64]:
    """Return a uniform integer in `[0, bound)` for each tuple of coordinates.

    Multiply-shift on the upper 32 bits (Lemire, "Fast Random Integer Generation in an Interval", 2019). The bias is
    below `bound / 2**32`.

    Raises:
        ValueError: a bound is not in [1, 2**31).
    """
    if np.any(np.asarray(bound) <= 0) or np.any(np.asarray(bound) >= 2**31):
        raise ValueError(f"bound must lie in [1, 2**31), got {bound}")
    upper = hash_bits(*coordinates) >> np.uint64(32)
    return ((upper * np.asarray(bound, np.uint64)) >> np.uint64(32)).astype(np.int64)


def hash_uniform(*coordinates: Coordinate) -> NDArray[np.float64]:
    """Return a uniform number in `[0, 1)` with 53 random bits for each tuple of coordinates."""
    # 53 bits are the mantissa of a float64, so every value is exact and 1.0 is impossible.
    return (hash_bits(*coordinates) >> np.uint64(11)) * 2.0**-53


def hash_permutation(length: int, *coordinates: SupportsInt) -> NDArray[np.int64]:
    """Return [length], a random permutation of `range(length)` that depends only on the coordinates."""
    # Sort by a random key for each number; the stable sort decides equal keys alike on every machine.
    bits = hash_bits(*coordinates, np.arange(length))
    return np.argsort(bits, kind="stable").astype(np.int64)


def global_seed() -> int:
    """Return the seed of the run (`--seed_everything`), which Lightning passes to every rank."""
    return int(os.environ.get("PL_GLOBAL_SEED", 0))


def seed_torch(*coordinates: SupportsInt) -> None:
    """Seed torch's global generators (CPU and every device in use) by a hash of the coordinates."""
    seed = int(hash_bits(*coordinates) >> np.uint64(1))  # torch takes seeds of 63 bits
    # torch.manual_seed also queues a call, with a formatted stack, for each device type that is not in use: half a
    # millisecond per step, and a queue that grows without limit.
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(seed)
    if torch.backends.mps.is_available():
        torch.mps.manual_seed(seed)


def _hash_one(coordinates: list[int]) -> int:
    """Compute `hash_bits` of a single tuple in Python's integers, ten times as fast as numpy: each step needs some."""
    state = 0
    for coordinate in coordinates:
        # `&` binds tighter than `^`. The mask gives a negative coordinate its two's complement, as `_as_bits` does.
        bits = ((state ^ coordinate & _MASK) + GOLDEN) & _MASK
        bits = ((bits ^ bits >> 30) * _MIX_1) & _MASK
        bits = ((bits ^ bits >> 27) * _MIX_2) & _MASK
        state = bits ^ bits >> 31
    return state


def _as_bits(coordinate: Coordinate) -> NDArray[np.uint64]:
    if isinstance(coordinate, np.ndarray):
        return coordinate.astype(np.int64).view(np.uint64)
    return np.asarray(int(coordinate) & _MASK, np.uint64)

"""The fixed candidate list of the `sampled_100` protocol: 100 items that a user never met, the same in every run.

The SASRec and TiSASRec papers rank the held-out item among 100 uniform negatives. Their codes draw new ones at each
evaluation; here the list is a function of (seed, user) and a file, so that two models, or two programs, are compared
on the same candidates. Negatives are drawn with replacement, as there; unlike there, the held-out items are not among
them (the users' whole history is excluded, not its training part alone).
"""

import os
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from datamodules.recommender.sequences import Events, Integers, absent_items, user_chunks

_CANDIDATES = 4  # this stream's name beside those of the samplers, which hash the same seed


def sampled_candidates(events: Events, seed: int, count: int = 100, chunk: int = 1 << 20) -> NDArray[np.int32]:
    """``count`` uniform draws for each user from the items of which the user has no event at all.

    Args:
        chunk: events looked at together (memory, not result).

    Returns:
        int32 [U, count]

    Raises:
        ValueError: a user has every item.
    """
    candidates = np.empty((len(events.offsets) - 1, count), np.int32)
    for first, last in user_chunks(events.offsets, chunk):
        users = np.arange(first, last)
        starts, ends = events.offsets[first:last], events.offsets[first + 1 : last + 1]
        candidates[first:last] = absent_items(events, starts, ends, seed, _CANDIDATES, users[:, None], np.arange(count))
        _check_unmet(events, candidates[first:last], first, last, "has all items, so there is no negative to draw")
    return candidates


def save_candidates(path: Path, candidates: Integers) -> None:
    """Write int32 [U, count] as ``.npy``, whole or not at all."""
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    beside = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            np.save(file, np.asarray(candidates, np.int32), allow_pickle=False)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def load_candidates(path: Path, events: Events, chunk: int = 1 << 20) -> NDArray[np.int32]:
    """The candidate list in ``path``, memory-mapped, after a check that it can be one for these events.

    Raises:
        ValueError: the file is no candidate list, or one of another data set.
    """
    try:
        candidates = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise ValueError(f"{path}: not a candidate list (.npy, int32 [users, candidates]): {error}") from error
    users = len(events.offsets) - 1
    if candidates.dtype != np.int32 or candidates.ndim != 2 or len(candidates) != users:
        found = f"{candidates.dtype} {list(candidates.shape)}"
        raise ValueError(
            f"{path}: found {found}, expected int32 [{users}, candidates]: made from other data? Delete it"
        )
    if candidates.size and not 1 <= candidates.min() <= candidates.max() <= events.num_items:
        found = f"{candidates.min()} to {candidates.max()}"
        raise ValueError(
            f"{path}: found items {found}, expected 1 to {events.num_items}: made from other data? Delete it"
        )
    for first, last in user_chunks(events.offsets, chunk):
        _check_unmet(
            events, candidates[first:last], first, last, f"has a candidate of {path}: from other data? Delete it"
        )
    return candidates


def _check_unmet(events: Events, candidates: Integers, first: int, last: int, fault: str) -> None:
    """That no candidate of the users ``first`` to ``last`` is in that user's history."""
    span, low, high = events.num_items + 1, int(events.offsets[first]), int(events.offsets[last])
    users = np.repeat(np.arange(last - first), np.diff(events.offsets[first : last + 1]))
    met = np.isin(np.arange(last - first)[:, None] * span + candidates, users * span + events.items[low:high])
    if met.any():
        raise ValueError(f"user row {first + np.flatnonzero(met.any(1))[0]} {fault}")

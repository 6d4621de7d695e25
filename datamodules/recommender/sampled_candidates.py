"""Draws the candidates of the `sampled_100` protocol: 100 items without interactions of the user, fixed for all runs.

The SASRec and TiSASRec papers rank the held-out item among 100 uniform negatives. Their code draws new negatives at
each evaluation. Here the candidates are a function of (seed, user) and stored in a file, so that models and programs
are compared on the same candidates. Negatives are drawn with replacement, as in the papers; unlike there, the held-out
items are excluded (the whole history of a user is excluded, not only its training part).
"""

import logging
import os
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from datamodules.recommender.events import Events, Integers, user_chunks
from datamodules.recommender.negatives.uniform_negatives import absent_items
from engine.io.file_hash import crc32_file

log = logging.getLogger("lockstep")

_SEED = 0  # of every run, so that all models are compared on the same candidates
_CANDIDATES = 4  # hash key of the candidates
_CHECKSUM = ".crc32"  # suffix of the file with the CRC-32 of a file of candidates


def sampled_candidates(events: Events, seed: int, count: int = 100, chunk: int = 1 << 20) -> NDArray[np.int32]:
    """Draw `count` items per user, uniformly among the items without an event of the user.

    Args:
        events: events of all users.
        seed: seed of the candidates.
        count: candidates per user.
        chunk: events processed at once (affects memory, not the result).

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


def prepare_candidates(path: Path, events: Events) -> None:
    """Draw the candidates of a data set to a file, unless it has them. A folder that cannot be written is left."""
    if not candidates_are_intact(path):
        try:
            save_candidates(path, sampled_candidates(events, seed=_SEED))
        except PermissionError:
            log.info("%s is not writable; each run draws the candidates again", path)


def stored_candidates(path: Path, events: Events) -> NDArray[np.int32]:
    """Return the candidates of a data set, from the file of `prepare_candidates` if it is intact.

    Otherwise they are drawn again, to the same result.
    """
    return load_candidates(path, events) if candidates_are_intact(path) else sampled_candidates(events, seed=_SEED)


def save_candidates(path: Path, candidates: Integers) -> None:
    """Write int32 [U, count] as `.npy`, atomically, and its CRC-32 to a file beside it."""
    # The temporary file is in the folder of the file: a rename is atomic only within a file system.
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            np.save(file, np.asarray(candidates, np.int32), allow_pickle=False)
            file.flush()
            os.fsync(file.fileno())
        checksum = crc32_file(temporary)
        temporary.replace(path)
        # If the process is killed before this line, the old checksum does not fit, and the candidates are drawn again.
        path.with_suffix(_CHECKSUM).write_text(f"{checksum}\n", encoding="ascii")
    finally:
        temporary.unlink(missing_ok=True)


def candidates_are_intact(path: Path) -> bool:
    """Return whether a file of candidates exists with the content that `save_candidates` wrote."""
    try:
        return int(path.with_suffix(_CHECKSUM).read_bytes()) == crc32_file(path)
    except (FileNotFoundError, ValueError):
        return False


def load_candidates(path: Path, events: Events, chunk: int = 1 << 20) -> NDArray[np.int32]:
    """Load candidates memory-mapped and validate them against the events.

    Raises:
        ValueError: the file does not have candidates, or has the candidates of another data set.
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


def _check_unmet(events: Events, candidates: Integers, first: int, last: int, problem: str) -> None:
    """Check that no candidate of the users `first` to `last` is in the history of that user."""
    span, low, high = events.num_items + 1, int(events.offsets[first]), int(events.offsets[last])
    users = np.repeat(np.arange(last - first), np.diff(events.offsets[first : last + 1]))
    # A pair (user, item) is a single integer, so one search serves all users.
    seen = np.isin(np.arange(last - first)[:, None] * span + candidates, users * span + events.items[low:high])
    if seen.any():
        raise ValueError(f"user row {first + np.flatnonzero(seen.any(1))[0]} {problem}")

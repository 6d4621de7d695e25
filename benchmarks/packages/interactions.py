"""Writes the interactions that all variants read, a file with the columns user_id, item_id and timestamp."""

from pathlib import Path

import numpy as np

from benchmarks.recommender.movielens_like import movielens_like

HELD_OUT = 2
"""Events of each user that are not trained on: leave-one-out, validation and test."""


def write_ring(folder: Path, num_users: int = 256, num_items: int = 50, length: int = 20) -> Path:
    """Write users who walk along a ring of items from a random start: the next item follows from the last item."""
    first = np.random.default_rng(0).integers(num_items, size=(num_users, 1))
    # [users, length]; items count from 1
    items = (first + np.arange(length)) % num_items + 1
    users, times = np.divmod(np.arange(items.size), length)
    path = folder / "interactions.csv"
    rows = np.stack([users, items.ravel(), times], axis=1)
    np.savetxt(path, rows, fmt="%d", delimiter=",", header="user_id,item_id,timestamp", comments="")
    return path


def rows_of_epoch(prefixes: bool, length: int, num_users: int = 6040) -> tuple[int, int]:
    """Return the rows and targets of an epoch on interactions of ML-1M's size.

    Args:
        prefixes: a row is a prefix of a history and its last item; otherwise a row has a user's last events.
        length: the longest history, L.
        num_users: number of users, each with one history.
    """
    after_first = np.diff(movielens_like(num_users).offsets) - HELD_OUT - 1
    if prefixes:
        # Each prefix is a row of its own, with one target.
        return int(after_first.sum()), int(after_first.sum())
    return num_users, int(np.minimum(after_first, length).sum())

"""Making a store of a file of interactions, as `train.py prepare` does."""

import atexit
import shutil
import tempfile
from itertools import count
from pathlib import Path

import numpy as np
import polars as pl

from benchmarks.recommender.measure import Done, Work
from datamodules.recommender.store import prepare_store

_USERS_TO_ROWS = 150
"""Interactions of a user, about as many as in MovieLens-25M."""

_ITEMS = 60_000


def convert(rows: int) -> Work:
    """Reads, filters, sorts and writes; the amount is the number of rows."""
    folder = Path(tempfile.mkdtemp(prefix="lockstep-growth-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = write_interactions(folder / "interactions.parquet", rows)
    turn = count()

    def work() -> Done:
        cache = folder / f"store-{next(turn)}"
        store = prepare_store(path, cache=cache)
        if store.num_interactions > rows:
            raise AssertionError(f"{store.num_interactions} interactions of {rows} rows")
        shutil.rmtree(cache, ignore_errors=True)
        shutil.rmtree(folder / ".lockstep", ignore_errors=True)
        return Done(rows)

    return work


def write_interactions(path: Path, rows: int) -> Path:
    """Users and items in no order; few items have most of the interactions, as in real catalogues."""
    random = np.random.default_rng(1)
    users = random.integers(0, max(rows // _USERS_TO_ROWS, 1), rows)
    items = (_ITEMS * random.random(rows) ** 3).astype(np.int64)
    times = random.integers(956_703_932, 1_700_000_000, rows)
    pl.DataFrame({"user_id": users, "item_id": items, "timestamp": times}).write_parquet(path)
    return path

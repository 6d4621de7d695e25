"""Measures the conversion of a Parquet table of interactions into a store, as `train.py prepare` does it."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path

import numpy as np
import polars as pl

from benchmarks.recommender.measure import Done, Maker, Work
from datamodules.recommender.store.prepare import prepare_store

_USERS_TO_ROWS = 150
"""Interactions per user, about as many as in MovieLens-25M."""

_ITEMS = 60_000

_PART = 10_000_000
"""Rows of a file."""


@contextmanager
def conversion_makers(sizes: list[int]) -> Iterator[dict[str, Maker]]:
    """Yield a variant for every size. Their files are in a folder that is removed even if a variant is killed."""
    with tempfile.TemporaryDirectory(prefix="lockstep-growth-", ignore_cleanup_errors=True) as folder:
        yield {f"{rows:,} rows": partial(convert, Path(folder) / f"{rows}", rows) for rows in sizes}


def convert(folder: Path, rows: int) -> Work:
    """Read, filter, sort and write in a new folder; the amount is the number of rows."""
    folder.mkdir()
    path = write_interactions(folder / "interactions", rows)
    turn = count()

    def work() -> Done:
        # A new folder in each turn, because an existing store would be found and not made again.
        cache = folder / f"store-{next(turn)}"
        store = prepare_store(path, cache=cache)
        if store.num_interactions > rows:
            raise AssertionError(f"{store.num_interactions} interactions of {rows} rows")
        shutil.rmtree(cache, ignore_errors=True)
        return Done(rows)

    return work


def write_interactions(folder: Path, rows: int, users: int | None = None, items: int = _ITEMS) -> Path:
    """Write users and items in random order; a few items have most of the interactions, as in real catalogs.

    Args:
        folder: new folder of the Parquet files.
        rows: number of interactions.
        users: number of users that they are divided among; None for a user per 150 rows.
        items: number of items.
    """
    folder.mkdir()
    num_users = max(rows // _USERS_TO_ROWS, 1) if users is None else users
    random = np.random.default_rng(1)
    for part, first in enumerate(range(0, rows, _PART)):
        size = min(_PART, rows - first)
        user = random.integers(0, num_users, size)
        # The cube of a uniform number: a tenth of the items has nearly half of the interactions.
        item = (items * random.random(size) ** 3).astype(np.int64)
        times = random.integers(956_703_932, 1_700_000_000, size)
        table = pl.DataFrame({"user_id": user, "item_id": item, "timestamp": times})
        table.write_parquet(folder / f"part-{part}.parquet")
    return folder

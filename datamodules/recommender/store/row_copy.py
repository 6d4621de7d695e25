"""Copies the rows of a Parquet table to a database, in commits after which a killed conversion continues."""

import logging
from typing import TYPE_CHECKING

import numpy as np

from datamodules.recommender.reading.error_location import locate_value, plain_values
from datamodules.recommender.reading.errors import InteractionError
from datamodules.recommender.reading.file_formats import Layout
from datamodules.recommender.reading.filters import Filters
from datamodules.recommender.reading.interactions import (
    InvalidDataError,
    check_ids,
    require_no_calendar_dates,
    times_in_seconds,
    to_ratings,
)
from datamodules.recommender.reading.parquet_table import RowBlock, count_parquet_rows, read_blocks
from datamodules.recommender.store.row_database import RowDatabase

if TYPE_CHECKING:
    import polars as pl

log = logging.getLogger("lockstep")

_COMMITTED = 10_000_000
"""Rows after which the database is committed."""


def copy_rows(database: RowDatabase, layout: Layout, filters: Filters) -> None:
    """Copy the rows in order; each commit has the row group after which a killed conversion continues."""
    database.run("CREATE TABLE IF NOT EXISTS progress (part INTEGER, row_group INTEGER, rows BIGINT, of_part BIGINT)")
    done = database.run("FROM progress")
    part, group, rows, part_rows = done[0] if done else (0, -1, 0, 0)
    expected = count_parquet_rows(layout.files)
    if rows:
        log.info("%s: continuing after row %s of %s", layout.path, f"{rows:,}", f"{expected:,}")
    committed = rows
    database.run("BEGIN")
    for block in read_blocks(layout.files, layout.read_columns, (part, group)):
        if block.part != part:
            part, part_rows = block.part, 0
        table = _validate_block(block, layout, filters, rows, part_rows)
        if not rows:
            _create_events(database, table)
        database.insert("events", table)
        rows, part_rows = rows + len(table), part_rows + len(table)
        # Progress counts row groups, so a commit in the middle of a row group would copy its first rows twice.
        if block.is_last and rows - committed >= _COMMITTED:
            _commit(database, block.part, block.row_group, rows, part_rows)
            committed = rows
            log.info("%s: %s of %s rows are copied", layout.path, f"{rows:,}", f"{expected:,}")
    if rows != expected or not rows:
        raise InteractionError(f"{layout.path}: {rows:,} rows were read, the files have {expected:,}")
    _commit(database, len(layout.files), -1, rows, 0)
    database.run("COMMIT")


def _create_events(database: RowDatabase, rows: "pl.DataFrame") -> None:
    import polars as pl

    # Ids above 2**63 - 1 need the unsigned type.
    kinds = {pl.String: "VARCHAR", pl.UInt64: "UBIGINT"}
    user, item = (kinds.get(type(rows.schema[name]), "BIGINT") for name in ("user", "item"))
    database.run(f"CREATE TABLE events (row BIGINT, user {user}, item {item}, time BIGINT, passes BOOLEAN)")


def _commit(database: RowDatabase, part: int, row_group: int, rows: int, part_rows: int) -> None:
    # Progress is in the same transaction as the rows, so that they cannot disagree after a kill.
    database.run("DELETE FROM progress")
    database.run("INSERT INTO progress VALUES (?, ?, ?, ?)", part, row_group, rows, part_rows)
    database.run("COMMIT")
    database.run("BEGIN")


def _validate_block(block: RowBlock, layout: Layout, filters: Filters, rows: int, part_rows: int) -> "pl.DataFrame":
    """Return the rows of a block as they are in the database.

    Raises:
        InteractionError: a value is invalid.
    """
    import polars as pl

    file, columns = layout.files[block.part], {}
    try:
        for name in layout.read_columns:
            values = plain_values(name, block.table.schema[name], layout)
            if values is None:
                raise InvalidDataError(f"column {name!r} is of another type")
            columns[name] = block.table.select(values).to_series()
        for name in (layout.user, layout.item):
            if columns[name].dtype == pl.String:
                check_ids(columns[name])
            elif columns[name].null_count():
                raise InvalidDataError(f"column {name!r} has an empty id")
        times = np.zeros(len(block.table), np.int64) if layout.time is None else times_in_seconds(columns[layout.time])
        require_no_calendar_dates(times, layout)
        passes = np.ones(len(block.table), np.bool_)
        if layout.rating is not None:
            assert filters.min_rating is not None, "ratings are read for min_rating"
            passes = to_ratings(columns[layout.rating]) >= filters.min_rating
    except (InvalidDataError, pl.exceptions.PolarsError) as error:
        faults = (
            locate_value(columns.get(name), name, file, layout, kind=block.table.schema[name], before=part_rows)
            for name in layout.read_columns
        )
        found = next(filter(None, faults), None)
        raise InteractionError(found or f"{file}: cannot be read as {layout.kind}: {error}") from error
    user, item = columns[layout.user].alias("user"), columns[layout.item].alias("item")
    row = pl.Series("row", np.arange(rows, rows + len(block.table)))
    return pl.DataFrame([row, user, item, pl.Series("time", times), pl.Series("passes", passes)])

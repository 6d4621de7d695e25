"""Converts Parquet tables that are larger than memory, on disk with DuckDB.

The store is identical to the byte to a store by `to_sequences`, whose rules apply. The rows are copied to a database
beside the store, block by block, and sorted there; both need disk space of about the size of the table, uncompressed. A
conversion that was killed continues after the last block that was committed.
"""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from datamodules.recommender.reading.errors import InteractionError, SourceChangedError
from datamodules.recommender.reading.file_formats import Layout
from datamodules.recommender.reading.filters import Filters, nothing_left, report_rows
from datamodules.recommender.store.interaction_store import DTYPES, InteractionStore
from datamodules.recommender.store.row_copy import copy_rows
from datamodules.recommender.store.row_database import BLOCK, RowDatabase
from datamodules.recommender.store.store_writer import StoreDraft, write_texts
from engine.io.atomic_file import remove
from engine.io.error_line import first_line

log = logging.getLogger("lockstep")

BYTES_OF_A_ROW = 47
"""Memory that the conversion in memory takes for a row."""

_LEFT = "FROM events WHERE passes AND item NOT IN (FROM dropped_items) AND user NOT IN (FROM dropped_users)"


def convert_out_of_core(
    layout: Layout,
    filters: Filters,
    root: Path,
    *,
    memory_gb: float,
    source: dict[str, Any],
    check_source: Callable[[], None] = lambda: None,
) -> InteractionStore:
    """Convert a Parquet table to a store in bounded memory.

    Args:
        layout: the table.
        filters: see `apply_filters`.
        root: folder of the store.
        memory_gb: memory of the process in GB, libraries apart; more is needed for over 30 million users or items.
        source: provenance, for `write_store`.
        check_source: called after the table has been read; raises SourceChangedError if it was changed meanwhile.

    Raises:
        InteractionError: the table cannot be read or was changed meanwhile, or the filters drop all rows.
    """
    import duckdb

    work = root.with_name(f".{root.name}.work")
    work.mkdir(parents=True, exist_ok=True)
    try:
        return _convert(
            layout=layout,
            filters=filters,
            root=root,
            work=work,
            memory_gb=memory_gb,
            source=source,
            check_source=check_source,
        )
    except SourceChangedError:
        remove(work)  # the next start must not continue with rows of two versions
        raise
    except duckdb.OutOfMemoryException as error:
        raise InteractionError(
            f"{layout.path}: {first_line(error)[:300]}; give the conversion more of it: "
            "data.init_args.conversion_memory"
        ) from error
    except (duckdb.Error, OSError) as error:
        raise InteractionError(
            f"{layout.path}: the conversion stopped: {first_line(error)[:300]}; it continues at the next start, or "
            f"from the beginning if you delete {work}"
        ) from error


def _convert(
    layout: Layout,
    filters: Filters,
    root: Path,
    work: Path,
    memory_gb: float,
    source: dict[str, Any],
    check_source: Callable[[], None],
) -> InteractionStore:
    database = RowDatabase(work, memory_gb / 2)
    try:
        try:
            copy_rows(database, layout, filters)
        finally:
            check_source()  # a change is also the cause of rows that do not parse or add up
        report = _filter(database, layout, filters)
        log.info("%s: %s", layout.path, report)
        with StoreDraft(root) as draft:
            sizes = _sort(database, work, draft.folder)
            store = draft.publish(*sizes, has_times=layout.time is not None, source=source)
    finally:
        database.close()
    # This is not in `finally`: the next start continues with the rows that a failed conversion has copied.
    remove(work)
    return store


def _filter(database: RowDatabase, layout: Layout, filters: Filters) -> str:
    """Write the users and items that the filters drop to two tables; return the report."""
    below_rating = database.number("SELECT count(*) FROM events WHERE NOT passes")
    for name in ("item", "user"):
        # An empty table with the column's type.
        database.run(f"CREATE OR REPLACE TABLE dropped_{name}s AS SELECT {name} FROM events LIMIT 0")
    dropped, rounds = [0, 0], 0
    while True:
        before = sum(dropped)
        for side, (name, min_count) in enumerate(zip(("item", "user"), filters[:2], strict=True)):
            if min_count > 1:
                dropped[side] += _drop_rare(database, name, min_count)
        rounds += 1
        # A dropped user may leave an item below its minimum, and vice versa: a k-core repeats until nothing changes.
        if not filters.k_core or sum(dropped) == before:
            break
    rows = database.number("SELECT count(*) FROM events")
    report = report_rows(filters, rows, below_rating, dropped, rounds)
    if rows == below_rating + sum(dropped):
        sizes = [database.number(f"SELECT count(DISTINCT {name}) FROM events") for name in ("user", "item")]
        raise nothing_left(filters, rows, sizes[0], sizes[1], report)
    return report


def _drop_rare(database: RowDatabase, name: str, min_count: int) -> int:
    database.run(
        f"CREATE OR REPLACE TEMP TABLE rare AS SELECT {name}, count(*) AS n {_LEFT} GROUP BY {name} "
        f"HAVING n < {min_count}"
    )
    database.run(f"INSERT INTO dropped_{name}s SELECT {name} FROM rare")
    return database.number("SELECT sum(n) FROM rare")


class _StoreSizes(NamedTuple):
    """Numbers of entries of a store, in the order of `StoreDraft.publish`."""

    users: int
    items: int
    events: int


def _sort(database: RowDatabase, work: Path, folder: Path) -> _StoreSizes:
    """Write sequences and ids to the files of a store."""
    database.run("CREATE OR REPLACE TABLE users AS SELECT user, min(row) AS first FROM events GROUP BY user")
    distinct = f"SELECT DISTINCT item {_LEFT}"
    database.run(f"CREATE OR REPLACE TABLE items AS SELECT item, row_number() OVER () - 1 AS code FROM ({distinct})")
    catalog = database.number("SELECT count(*) FROM items")
    events = database.number(f"SELECT count(*) {_LEFT}")
    written = _write_events(database, work / "codes", folder / "times.npy", events, catalog)
    np.save(folder / "offsets.npy", np.concatenate([[0], np.cumsum(written.lengths)]).astype(DTYPES["offsets"]))
    order = np.argsort(written.first_events, kind="stable")  # codes of the items by first appearance
    numbers = np.empty(catalog, DTYPES["items"])
    numbers[order] = np.arange(1, catalog + 1)
    with (work / "codes").open("rb") as codes, (folder / "items.npy").open("wb") as file:
        _write_header(file, "items", events)
        while (block := np.fromfile(codes, np.int32, BLOCK)).size:
            file.write(numbers[block].tobytes())
    (work / "codes").unlink()
    for name, column, key, keys in (
        ("user_ids", "user", "first", written.first_rows),
        ("item_ids", "item", "code", order),
    ):
        number = write_texts(folder / f"{name}.json", database.texts(f"{column}s", column, key, keys))
        if number != len(keys):
            raise AssertionError(f"{number} {name} of {len(keys)}")
    return _StoreSizes(len(written.first_rows), catalog, events)


class _WrittenEvents(NamedTuple):
    """Where users and items appear among the events of a store."""

    first_rows: NDArray[np.int64]  # [U] first row of each user in the table, in the order of the store
    lengths: NDArray[np.int64]  # [U] number of events of each user
    first_events: NDArray[np.int64]  # [I] first event of each item's code


def _write_events(database: RowDatabase, codes: Path, times: Path, events: int, catalog: int) -> _WrittenEvents:
    """Write the code of each event's item, and its time, in the order of the store."""
    query = (
        f"SELECT first, code::INTEGER AS code, time FROM (SELECT * {_LEFT}) JOIN users USING (user) "
        "JOIN items USING (item) ORDER BY first, time, row"
    )
    # A user's events may span several blocks of the result; the last entries of both lists are still open.
    first_rows, lengths = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    first_events, number = np.full(catalog, events, np.int64), 0
    with codes.open("wb") as code_file, times.open("wb") as time_file:
        _write_header(time_file, "times", events)
        for first, code, time in database.blocks(query, ("first", "code", "time")):
            code_file.write(code.tobytes())
            time_file.write(time.tobytes())
            starts = np.flatnonzero(np.concatenate([[True], first[1:] != first[:-1]]))
            users, counts = first[starts], np.diff(starts, append=len(first))
            if first_rows[-1].size and users[0] == first_rows[-1][-1]:  # the previous block ends with the same user
                lengths[-1][-1] += counts[0]
                users, counts = users[1:], counts[1:]
            if users.size:
                first_rows.append(users)
                lengths.append(counts)
            new = np.flatnonzero(first_events[code] == events)[::-1]
            # numpy keeps the last assignment to a repeated index; in reverse order this is the first appearance.
            first_events[code[new]] = number + new
            number += len(code)
    if number != events:
        raise AssertionError(f"{number} events of {events} were sorted")
    return _WrittenEvents(np.concatenate(first_rows), np.concatenate(lengths), first_events)


def _write_header(file: BinaryIO, name: str, size: int) -> None:
    header = {"descr": np.lib.format.dtype_to_descr(DTYPES[name]), "fortran_order": False, "shape": (size,)}
    np.lib.format.write_array_header_1_0(file, header)

"""Stores rows in a database on disk, for conversions that are larger than memory."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import polars as pl

BLOCK = 1_000_000
"""Rows of a block of a query's result."""


class RowDatabase:
    """A DuckDB database of rows, with a memory limit, whose sorts spill to disk.

    Args:
        folder: folder of the database and of the files of its sorts.
        memory_gb: its memory.
    """

    def __init__(self, folder: Path, memory_gb: float) -> None:
        import duckdb

        shutil.rmtree(folder / "sorted", ignore_errors=True)  # files of a killed process
        self._connection = duckdb.connect(
            str(folder / "rows.duckdb"),
            config={
                "memory_limit": f"{memory_gb:.3f}GB",
                "temp_directory": str(folder / "sorted"),
                # Each thread has buffers of its own.
                "threads": max(1, min(os.cpu_count() or 1, int(4 * memory_gb))),
                # Takes less memory. Rows carry their number, and queries sort by it.
                "preserve_insertion_order": False,
            },
        )
        self.run("SET enable_progress_bar = false")

    def run(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """Execute a query; return its rows."""
        return self._connection.execute(query, values or None).fetchall()

    def number(self, query: str) -> int:
        """Return the number that a query selects."""
        return int(self.run(query)[0][0] or 0)

    def insert(self, table: str, rows: "pl.DataFrame") -> None:
        """Append rows to a table, whose columns have the same order."""
        self._connection.register("block", rows.to_arrow())
        self.run(f"INSERT INTO {table} FROM block")
        self._connection.unregister("block")

    def blocks(self, query: str, columns: tuple[str, ...]) -> Iterator[tuple[NDArray[Any], ...]]:
        """Yield the result of a query in blocks: an array for each column."""
        for batch in self._connection.sql(query).to_arrow_reader(BLOCK):
            if batch.num_rows:
                yield tuple(batch.column(name).to_numpy(zero_copy_only=False) for name in columns)

    def texts(self, table: str, column: str, key: str, keys: NDArray[np.int64]) -> Iterator[str]:
        """Yield a column of a table as text, for the rows with these keys [n] and in their order."""
        import polars as pl

        self._connection.register("wanted", pl.DataFrame({key: keys, "n": np.arange(len(keys))}).to_arrow())
        query = f"SELECT {column}::VARCHAR AS text FROM {table} JOIN wanted USING ({key}) ORDER BY n"
        for (texts,) in self.blocks(query, ("text",)):
            yield from texts
        self._connection.unregister("wanted")

    def close(self) -> None:
        """Close the connection; the file stays."""
        self._connection.close()

"""Parquet tables in several files, as Spark, Ray and Dask write them, and their rows in blocks of bounded memory.

The parts of a table are in the order of their names, in which numbers count as numbers: ``part.10`` follows ``part.9``.
The rows of the table are those of the first part, then those of the second, and so on.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from datamodules.recommender.reading.errors import InteractionError
from datamodules.recommender.reading.parquet_table import ParquetError, count_rows, read_batches, read_schema

if TYPE_CHECKING:
    import polars as pl

_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_VARYING = re.compile(rf"{_UUID}|[0-9a-f]{{32}}|[0-9]+|(?<=[^/=]=)[^/]+(?=/)")
"""What differs between the names of parts: numbers, a job's UUID, and the value of a partition (``KEY=VALUE/``)."""


class Block(NamedTuple):
    """Rows of a part that follow each other."""

    part: int
    row_group: int  # of the part
    is_last: bool  # whether the row group ends with this block
    table: "pl.DataFrame"


def find_parts(folder: Path) -> tuple[Path, ...]:
    """Return the parts of the Parquet table in a folder, in the order of their names; empty if there is none.

    Parts have names that differ by numbers, UUIDs and values of partitions (``day=7/part-00003.parquet``) only, so that
    two tables in a folder are not taken for the parts of one. Names that begin with ``_`` or ``.`` are skipped.
    """
    names = [path.relative_to(folder).as_posix() for path in folder.rglob("*.parquet") if path.is_file()]
    names = [name for name in names if not re.search(r"(?:^|/)[._]", name)]
    if len({_VARYING.sub("#", name) for name in names}) != 1:
        return ()
    return tuple(folder / name for name in sorted(names, key=_with_numbers))


def require_one_schema(parts: Sequence[Path], columns: Sequence[str]) -> None:
    """Check that the columns that are read have one type in all parts.

    Raises:
        InteractionError: a part is not a Parquet file, or a column is missing or of another type.
    """
    first = parquet_schema(parts[0])
    for part in parts[1:]:
        schema = parquet_schema(part)
        for name in columns:
            found, expected = schema.get(name), first[name]
            if found != expected:
                is_missing = "no such column" if found is None else f"type {found}"
                raise InteractionError(
                    f"{part}: column {name!r}: found {is_missing}, expected {expected} as in {parts[0].name}; write "
                    "all parts with one schema"
                )


def parquet_schema(path: Path) -> "Mapping[str, pl.DataType]":
    """Return the columns of a Parquet file and their types.

    Raises:
        InteractionError: the file is not whole.
    """
    try:
        return read_schema(path)
    except ParquetError as error:
        raise InteractionError(f"{path}: not a whole Parquet file ({error}); fetch or write it again") from error


def count_parquet_rows(files: Sequence[Path]) -> int:
    """Return the number of rows by the footers of the files. Raises the errors of `parquet_table.read_schema`."""
    return sum(map(count_rows, files))


def read_blocks(parts: Sequence[Path], columns: Sequence[str], after: tuple[int, int]) -> Iterator[Block]:
    """Read the rows of parts in order.

    Args:
        parts: the files.
        columns: names of the columns.
        after: part and row group after which to begin; (0, -1) for all rows.

    Raises:
        InteractionError: a file is truncated or corrupt.
        OSError: a file cannot be read.
    """
    for number in range(after[0], len(parts)):
        first = after[1] + 1 if number == after[0] else 0
        try:
            for group, is_last, table in read_batches(parts[number], columns, first):
                yield Block(number, group, is_last, table)
        except ParquetError as error:
            raise InteractionError(
                f"{parts[number]}: cannot be read as Parquet: {error}; the file is corrupt or cut off, fetch or write "
                "it again"
            ) from error


def _with_numbers(name: str) -> list[tuple[int, str]]:
    """Return a key by which names are sorted with their numbers as numbers."""
    return [(int(text), "") if text.isdigit() else (-1, text) for text in re.split(r"(\d+)", name)]

"""Reads Parquet tables, of a single file or several, in batches.

pyarrow decodes the pages, and polars holds the values. Where a page has too few bytes, polars would take zeros for the
missing bytes, and pyarrow raises. pyarrow also compares the checksums of pages, if the writer has stored any.

Spark, Ray and Dask write a table in parts. They are in the order of their names, in which numbers count as numbers:
`part.10` follows `part.9`. The rows of the table are the rows of the parts in this order.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from datamodules.recommender.reading.errors import InteractionError
from engine.io.folder_walk import require_no_linked_folder, walk_visible, without_folders

if TYPE_CHECKING:
    import polars as pl
    from pyarrow.parquet import ParquetFile

_BATCH = 1 << 16  # rows
_ROWS = 1_000_000  # of several columns: tens of megabytes
_BUFFER = 1 << 20  # bytes of a column that are read at once
_MESSAGE = 300  # characters

_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_VARYING = re.compile(rf"{_UUID}|[0-9a-f]{{32}}|[0-9]+|(?<=[^/=]=)[^/]+(?=/)")
"""What differs between the names of parts: numbers, a job's UUID, and the value of a partition (`KEY=VALUE/`)."""


class ParquetError(Exception):
    """A Parquet file is truncated or corrupt. The message is the reason, on one line."""


def read_schema(path: Path) -> "dict[str, pl.DataType]":
    """Return the polars type of each column; `Unknown` for a type that polars does not have.

    Raises:
        ParquetError: the file is no Parquet file, truncated or corrupt, or two columns have the same name.
        OSError: the file cannot be read.
    """
    with _open(path) as file:
        schema = file.schema_arrow
        twice = next((name for name in schema.names if schema.names.count(name) > 1), None)
        if twice is not None:
            raise ParquetError(f"two columns have the name {twice[:_MESSAGE]!r}")
        return {field.name: _polars_type(field.type) for field in schema}


def count_rows(path: Path) -> int:
    """Return the number of rows that the footer states. Raises the errors of `read_schema`."""
    with _open(path) as file:
        return int(file.metadata.num_rows)


def read_column(path: Path, name: str, convert: "Callable[[pl.Series], pl.Series]") -> "pl.Series":
    """Read a column.

    Args:
        path: the file.
        name: the column.
        convert: applied to each batch of rows, so that the memory holds the converted column and one batch.

    Returns:
        The converted batches in a single series; for an empty table, the conversion of an empty batch.

    Raises:
        ParquetError: a page is truncated or corrupt, or a text is not UTF-8.
        OSError: the file cannot be read.
    """
    import polars as pl

    with _open(path) as file:
        field = file.schema_arrow.field(name)
        batches = [convert(pl.Series(name, [], dtype=_polars_type(field.type)))]
        for batch in file.iter_batches(_BATCH, columns=[name], use_threads=False):
            column = batch.column(batch.schema.get_field_index(name))
            column.validate(full=True)  # polars trusts offsets, texts and codes
            batches.append(convert(pl.Series(name, column)))
        return pl.concat(batches, rechunk=True)


def read_batches(path: Path, columns: Sequence[str], first: int = 0) -> "Iterator[tuple[int, bool, pl.DataFrame]]":
    """Yield rows of several columns in order, at most a million at a time.

    Args:
        path: the file.
        columns: names of the columns.
        first: row group to begin with.

    Yields:
        The row group, whether it ends with these rows, and the rows.

    Raises:
        ParquetError: a page is truncated or corrupt, or a text is not UTF-8.
        OSError: the file cannot be read.
    """
    import polars as pl

    with _open(path) as file:
        for group in range(first, file.num_row_groups):
            rows_left = file.metadata.row_group(group).num_rows
            for batch in file.iter_batches(_ROWS, row_groups=[group], columns=list(columns), use_threads=False):
                batch.validate(full=True)  # polars trusts offsets, texts and codes
                rows_left -= batch.num_rows
                table = pl.from_arrow(batch)
                assert isinstance(table, pl.DataFrame)
                yield group, rows_left <= 0, table


@contextmanager
def _open(path: Path) -> "Iterator[ParquetFile]":
    import pyarrow
    import pyarrow.parquet

    try:
        # Prefetching is off: it would hold the whole column of a row group.
        with pyarrow.parquet.ParquetFile(
            path, buffer_size=_BUFFER, pre_buffer=False, page_checksum_verification=True
        ) as file:
            yield file
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError, OverflowError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # of the file system; errors of the content have no number
        raise ParquetError(" ".join(str(error).split())[:_MESSAGE] or type(error).__name__) from error


def _polars_type(kind: Any) -> "pl.DataType":
    import polars as pl
    import pyarrow

    try:
        return pl.Series(pyarrow.array([], kind)).dtype
    except (pyarrow.ArrowException, pl.exceptions.PolarsError, pl.exceptions.PanicException, TypeError, ValueError):
        return pl.Unknown()


class RowBlock(NamedTuple):
    """Rows of a part that follow each other."""

    part: int
    row_group: int  # of the part
    is_last: bool  # whether the row group ends with this block
    table: "pl.DataFrame"


def find_parts(folder: Path) -> tuple[Path, ...]:
    """Return the parts of the Parquet table in a folder, in the order of their names; empty if there is none.

    Parts have names that differ by numbers, UUIDs and values of partitions (`day=7/part-00003.parquet`) only, so that
    two tables in a folder are not taken for parts of the same table. Names that begin with `_` or `.` are skipped.

    Raises:
        FileNotFoundError: a part is a link to a missing file, a pipe or a device, or the table has parts in a linked
            folder.
    """
    visible = [path for path in walk_visible(folder) if not re.search(r"(?:^|/)_", path.relative_to(folder).as_posix())]
    found = [path for path in visible if path.name.endswith(".parquet")]
    names = [path.relative_to(folder).as_posix() for path in without_folders(found)]
    if len({_VARYING.sub("#", name) for name in names}) != 1:
        return ()
    require_no_linked_folder(folder, visible, ".parquet")
    return tuple(folder / name for name in sorted(names, key=_natural_sort_key))


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


def read_blocks(parts: Sequence[Path], columns: Sequence[str], after: tuple[int, int]) -> Iterator[RowBlock]:
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
                yield RowBlock(number, group, is_last, table)
        except ParquetError as error:
            raise InteractionError(
                f"{parts[number]}: cannot be read as Parquet: {error}; the file is corrupt or cut off, fetch or write "
                "it again"
            ) from error


def _natural_sort_key(name: str) -> list[tuple[int, str]]:
    """Return a key by which names are sorted with their numbers as numbers."""
    return [(int(text), "") if text.isdigit() else (-1, text) for text in re.split(r"(\d+)", name)]

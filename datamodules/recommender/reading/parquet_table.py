"""Columns of a Parquet table, read in batches.

pyarrow decodes the pages, and polars has the values: where a page has too few bytes, polars takes zeros for the missing
ones, and pyarrow raises. pyarrow also compares the checksums of pages, if the writer left any.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl
    from pyarrow.parquet import ParquetFile

_BATCH = 1 << 16  # rows
_ROWS = 1_000_000  # of several columns: tens of megabytes
_BUFFER = 1 << 20  # bytes of a column that are read at once
_MESSAGE = 300  # characters


class ParquetError(Exception):
    """A Parquet file is truncated or corrupt. The message is the reason, on one line."""


def read_schema(path: Path) -> "dict[str, pl.DataType]":
    """Return the polars type of each column; `Unknown` for a type that polars does not have.

    Raises:
        ParquetError: the file is no Parquet file, truncated or corrupt, or two columns have the same name.
        OSError: the file cannot be read.
    """
    with _opened(path) as file:
        schema = file.schema_arrow
        twice = next((name for name in schema.names if schema.names.count(name) > 1), None)
        if twice is not None:
            raise ParquetError(f"two columns have the name {twice[:_MESSAGE]!r}")
        return {field.name: _polars_type(field.type) for field in schema}


def count_rows(path: Path) -> int:
    """Return the number of rows that the footer states. Raises the errors of `read_schema`."""
    with _opened(path) as file:
        return int(file.metadata.num_rows)


def read_column(path: Path, name: str, convert: "Callable[[pl.Series], pl.Series]") -> "pl.Series":
    """Read a column.

    Args:
        path: the file.
        name: the column.
        convert: applied to each batch of rows, so that the memory holds the converted column and one batch.

    Returns:
        The converted batches in one series, with at least the conversion of an empty one.

    Raises:
        ParquetError: a page is truncated or corrupt, or a text is not UTF-8.
        OSError: the file cannot be read.
    """
    import polars as pl

    with _opened(path) as file:
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

    with _opened(path) as file:
        for group in range(first, file.num_row_groups):
            left = file.metadata.row_group(group).num_rows
            for batch in file.iter_batches(_ROWS, row_groups=[group], columns=list(columns), use_threads=False):
                batch.validate(full=True)  # polars trusts offsets, texts and codes
                left -= batch.num_rows
                table = pl.from_arrow(batch)
                assert isinstance(table, pl.DataFrame)
                yield group, left <= 0, table


@contextmanager
def _opened(path: Path) -> "Iterator[ParquetFile]":
    import pyarrow
    import pyarrow.parquet

    try:
        # Without prefetching, which would hold the whole column of a row group.
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

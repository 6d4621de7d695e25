"""Reads any row of Parquet files, by row groups.

A row group is the smallest unit of a Parquet file that can be read. A sample therefore costs a whole group, unless the
group is in the cache. Reading is cheap in an order that stays within a few groups for a while, see `ShuffleBlocks`.
"""

import hashlib
import mmap
from collections.abc import Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from datamodules.vision_language.files.lru_cache import SizedLRUCache
from engine.data.errors import BadSampleError, FileChangedError
from engine.system.installation import PROGRAM

if TYPE_CHECKING:
    from pyarrow import RecordBatch, Schema, Table
    from pyarrow.parquet import FileMetaData, ParquetFile

CACHE_BYTES = 192 * 2**20
"""Maximum size of the row groups that a process, and each of its workers, keeps in memory, in bytes."""

_OPEN_FILES = 64
_MESSAGE = 300  # characters


class RowGroupOutline(NamedTuple):
    """The g non-empty row groups of a file, from its footer."""

    groups: NDArray[np.int64]  # [g] number in the file
    rows: NDArray[np.int64]  # [g] number of rows
    sizes: NDArray[np.int64]  # [g] uncompressed size of the selected columns, in bytes


def read_footer(path: Path) -> "FileMetaData":
    """Read the metadata of a Parquet file.

    Raises:
        ValueError: the file is not Parquet.
        OSError: the file cannot be read.
    """
    return read_schema(path)[0]


def read_schema(path: Path) -> tuple["FileMetaData", "Schema"]:
    """Read the metadata of a Parquet file and its schema. Raises the errors of `read_footer`."""
    import pyarrow
    import pyarrow.parquet

    try:
        footer = pyarrow.parquet.read_metadata(path)
        return footer, footer.schema.to_arrow_schema()
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # of the file system; errors of the content have no number
        raise ValueError(f"{path}: not a Parquet file, or a truncated one: {one_line(error)}") from error


def one_line(error: Exception) -> str:
    """Return a message of pyarrow on one line, of bounded length."""
    return " ".join(str(error).split())[:_MESSAGE]


def file_identity(path: Path) -> str:
    """Hash the size and the footer of a Parquet file; the footer has the sizes of all parts."""
    size = path.stat().st_size
    with path.open("rb") as file:
        # A file ends with the footer, its length in 4 bytes, and the 4 bytes "PAR1".
        file.seek(size - 8)
        footer = int.from_bytes(file.read(4), "little") + 8
        file.seek(max(0, size - footer))
        return hashlib.sha256(f"{size} ".encode() + file.read()).hexdigest()[:16]


def read_outline(footer: "FileMetaData", columns: Sequence[str]) -> RowGroupOutline:
    """Return the row groups of a file, with the sizes of some columns."""
    leaves = [leaf for leaf in range(footer.num_columns) if footer.schema.column(leaf).path.split(".")[0] in columns]
    groups = [footer.row_group(group) for group in range(footer.num_row_groups)]
    rows = np.array([group.num_rows for group in groups], np.int64)
    unpacked = (sum(group.column(leaf).total_uncompressed_size for leaf in leaves) for group in groups)
    sizes = np.fromiter(unpacked, np.int64, len(groups))
    # Empty row groups would give two groups the same first row.
    return RowGroupOutline(np.flatnonzero(rows), rows[rows > 0], sizes[rows > 0])


class RowGroups:
    """Rows of several files, one file after the other.

    The object can be pickled and inherited by a fork: each process opens the files itself.

    Args:
        paths: the files.
        columns: columns to read.
        outlines: outline of each file.
        prepared: the files among these that `prepare` has written.

    Raises:
        BadSampleError: the first row group is corrupt.
        OSError: a file cannot be read, or a prepared file is corrupt.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        columns: Sequence[str],
        outlines: Sequence[RowGroupOutline],
        prepared: Set[Path] = frozenset(),
    ) -> None:
        self._prepared = prepared
        self.paths, self.columns = list(paths), list(columns)
        self._stamps = [_stamp(path) for path in self.paths]
        self._file = np.repeat(np.arange(len(self.paths)), [len(outline.rows) for outline in outlines])
        self._group = np.concatenate([outline.groups for outline in outlines])
        self._rows = np.concatenate([outline.rows for outline in outlines])
        self._ends = np.cumsum(self._rows)
        self.starts = self._ends - self._rows
        self.sizes = np.concatenate([outline.sizes for outline in outlines])
        if len(self):
            # With dictionary encoding a group is larger in memory than its footer states. The ratio of the first
            # group corrects the sizes of all.
            ratio = max(1.0, self._cached_table(0).nbytes / max(1, self.sizes[0]))
            self.sizes = np.ceil(self.sizes * ratio).astype(np.int64)

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def locate(self, row: int) -> tuple[int, int]:
        """Return the index of the file of a row, and the number of the row in the file."""
        file = int(self._file[self._group_of(row)])
        return file, row - int(self.starts[np.searchsorted(self._file, file)])

    def row(self, row: int) -> dict[str, Any]:
        """Read the columns of a row.

        Raises:
            BadSampleError: the row group is corrupt.
            OSError: the file cannot be read, was modified, or is a corrupt file that `prepare` has written.
        """
        group = self._group_of(row)
        table = self._cached_table(group)
        return {column: table.column(column)[row - int(self.starts[group])].as_py() for column in self.columns}

    def _group_of(self, row: int) -> int:
        if not 0 <= row < len(self):
            raise IndexError(f"row {row} of {len(self)}")
        return int(np.searchsorted(self._ends, row, side="right"))

    def _cached_table(self, group: int) -> "Table":
        import pyarrow

        file, number = int(self._file[group]), int(self._group[group])
        path, stamp = self.paths[file], self._stamps[file]
        try:
            return tables.get((path, stamp, number, *self.columns), lambda: self._read_group(path, stamp, group))
        except MemoryError:  # pyarrow's is an ArrowException, too
            raise
        except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
            if isinstance(error, FileChangedError) or (isinstance(error, OSError) and error.errno is not None):
                raise OSError(f"{path}, row group {number}: cannot be read: {error}") from error
            what = f"{path}, row group {number}: is corrupt: {one_line(error)}"
            if path in self._prepared:  # the samples are in the source, so none may be skipped
                raise OSError(f"{what}; delete the file, and `{PROGRAM} prepare` writes it again") from error
            raise BadSampleError(what) from error

    def _read_group(self, path: Path, stamp: tuple[int, int], group: int) -> "Table":
        import pyarrow

        # A file that was replaced has other row groups than the outlines: the wrong rows would be read.
        if _stamp(path) != stamp:
            raise FileChangedError("the file was modified since the run began")
        mapped = _files.get((path, stamp), lambda: _Mapped(path))
        # Threads do not survive a fork, and loaders are processes already.
        table = mapped.file.read_row_group(int(self._group[group]), columns=self.columns, use_threads=False)
        mapped.release_pages()
        # A corrupt page may decode to fewer rows without an error.
        if len(table) != self._rows[group]:
            raise pyarrow.ArrowInvalid(f"found {len(table)} rows, expected {self._rows[group]}")
        check_dictionaries(table)
        return table


def check_dictionaries(rows: "Table | RecordBatch") -> None:
    """Check the codes of dictionary-encoded columns, which pyarrow reads as they are.

    Raises:
        pyarrow.ArrowInvalid: a code has no value, or a value is not UTF-8.
    """
    for column in rows.columns:
        if "dictionary<" in str(column.type):  # also within a list or a struct
            column.validate(full=True)


def _stamp(path: Path) -> tuple[int, int]:
    stat = path.stat()
    return stat.st_size, stat.st_mtime_ns


class _Mapped:
    """A memory-mapped Parquet file.

    Raises:
        OSError: the file cannot be read.
    """

    def __init__(self, path: Path) -> None:
        import pyarrow
        import pyarrow.parquet

        with path.open("rb") as file:
            self._memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        source = pyarrow.BufferReader(pyarrow.py_buffer(self._memory))
        # Pages without a checksum, as most writers leave them, are read without comparison.
        self.file: ParquetFile = pyarrow.parquet.ParquetFile(source, pre_buffer=False, page_checksum_verification=True)

    def release_pages(self) -> None:
        """Release the pages that were read; they are read again on demand.

        Otherwise they count as memory of every loader, until the loaders together seem to hold the file many times.
        """
        if hasattr(mmap, "MADV_DONTNEED"):
            self._memory.madvise(mmap.MADV_DONTNEED)


tables: "SizedLRUCache[Table]" = SizedLRUCache(CACHE_BYTES, lambda table: table.nbytes)
"""Cache of row groups, shared by all data sets of this process."""

_files: SizedLRUCache[_Mapped] = SizedLRUCache(_OPEN_FILES, lambda file: 1)

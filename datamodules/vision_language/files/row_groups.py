"""Rows of Parquet files, read by row groups: never a file as a whole.

A row group is the least of a Parquet file that can be read. So a sample costs its whole group, unless the group is
still there from another sample: reading is cheap in an order that stays among a few groups for a while (see `Blocks`).
"""

import hashlib
import mmap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from datamodules.vision_language.files.recent import Recent

if TYPE_CHECKING:
    from pyarrow import Table
    from pyarrow.parquet import FileMetaData, ParquetFile

KEPT = 192 * 2**20
"""Bytes of row groups that each process, and each of its loaders, keeps at most, whatever it reads."""

_OPEN_FILES = 64


class Outline(NamedTuple):
    """The g row groups of a file that are not empty, as its footer tells them."""

    groups: NDArray[np.int64]  # [g] their numbers in the file
    rows: NDArray[np.int64]  # [g]
    sizes: NDArray[np.int64]  # [g] bytes of the columns that are read, uncompressed


def read_footer(path: Path) -> "FileMetaData":
    """What a Parquet file says of itself.

    Raises:
        ValueError: it is no Parquet file.
        OSError: it cannot be read.
    """
    import pyarrow
    import pyarrow.parquet

    try:
        return pyarrow.parquet.read_metadata(path)
    except pyarrow.ArrowInvalid as error:
        raise ValueError(f"{path}: not a Parquet file, or one that was cut off: {error}") from error


def file_identity(path: Path) -> str:
    """Of what a Parquet file holds: its size and its footer, which knows the sizes of all its parts."""
    size = path.stat().st_size
    with path.open("rb") as file:
        file.seek(size - 8)
        footer = int.from_bytes(file.read(4), "little") + 8
        file.seek(max(0, size - footer))
        return hashlib.sha256(f"{size} ".encode() + file.read()).hexdigest()[:16]


def outline(footer: "FileMetaData", columns: Sequence[str]) -> Outline:
    """The row groups of a file, as far as some of its columns go."""
    leaves = [
        leaf for leaf in range(footer.num_columns) if footer.schema.column(leaf).path.split(".")[0] in columns
    ]
    groups = [footer.row_group(group) for group in range(footer.num_row_groups)]
    sizes = [sum(group.column(leaf).total_uncompressed_size for leaf in leaves) for group in groups]
    rows, sizes = np.array([group.num_rows for group in groups], np.int64), np.array(sizes, np.int64)
    return Outline(np.flatnonzero(rows), rows[rows > 0], sizes[rows > 0])


class RowGroups:
    """The rows of several files, one file after the other.

    It can be pickled and inherited by a fork: files are opened where they are read.

    Args:
        paths: the files.
        columns: what is read of them.
        outlines: of each file.

    Raises:
        OSError: the first row group cannot be read.
    """

    def __init__(self, paths: Sequence[Path], columns: Sequence[str], outlines: Sequence[Outline]) -> None:
        self.paths, self.columns = list(paths), list(columns)
        self._stamps = [_stamp(path) for path in self.paths]
        self._file = np.repeat(np.arange(len(self.paths)), [len(outline.rows) for outline in outlines])
        self._group = np.concatenate([outline.groups for outline in outlines])
        self._ends = np.cumsum(np.concatenate([outline.rows for outline in outlines]))
        self.starts = self._ends - np.concatenate([outline.rows for outline in outlines])
        self.sizes = np.concatenate([outline.sizes for outline in outlines])
        if len(self):
            # A file that says each value once tells less than what is kept; how much less, its first group shows.
            self.sizes = np.ceil(self.sizes * max(1.0, self._table(0).nbytes / max(1, self.sizes[0]))).astype(np.int64)

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def place(self, row: int) -> tuple[int, int]:
        """The file that a row is in, and its number there."""
        file = int(self._file[self._of(row)])
        return file, row - int(self.starts[np.searchsorted(self._file, file)])

    def row(self, row: int) -> dict[str, Any]:
        """The columns of a row.

        Raises:
            OSError: the row group cannot be read.
        """
        group = self._of(row)
        table = self._table(group)
        return {column: table.column(column)[row - int(self.starts[group])].as_py() for column in self.columns}

    def _of(self, row: int) -> int:
        if not 0 <= row < len(self):
            raise IndexError(f"row {row} of {len(self)}")
        return int(np.searchsorted(self._ends, row, side="right"))

    def _table(self, group: int) -> "Table":
        import pyarrow

        file, number = int(self._file[group]), int(self._group[group])
        path, stamp = self.paths[file], self._stamps[file]
        try:
            return tables.get((path, stamp, number, *self.columns), lambda: self._read(path, stamp, number))
        except (pyarrow.ArrowException, OSError) as error:
            raise OSError(f"{path}, row group {number}: cannot be read: {error}") from error

    def _read(self, path: Path, stamp: tuple[int, int], number: int) -> "Table":
        if _stamp(path) != stamp:
            raise OSError("it was written to since the run began")
        mapped = _files.get((path, stamp), lambda: _Mapped(path))
        # Without threads: they do not survive a fork, and loaders are processes already.
        table = mapped.file.read_row_group(number, columns=self.columns, use_threads=False)
        mapped.let_go()
        return table


def _stamp(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_size, found.st_mtime_ns


class _Mapped:
    """A Parquet file that is mapped into memory.

    Raises:
        OSError: it cannot be read.
    """

    def __init__(self, path: Path) -> None:
        import pyarrow
        import pyarrow.parquet

        with path.open("rb") as file:
            self._memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        source = pyarrow.BufferReader(pyarrow.py_buffer(self._memory))
        self.file: ParquetFile = pyarrow.parquet.ParquetFile(source, pre_buffer=False)

    def let_go(self) -> None:
        """The pages that were read are no more this process's memory; they are there again when they are needed.

        Without it they stay counted as its own: of each loader, until all together seem to hold the file many times.
        """
        if hasattr(mmap, "MADV_DONTNEED"):
            self._memory.madvise(mmap.MADV_DONTNEED)


tables: "Recent[Table]" = Recent(KEPT, lambda table: table.nbytes)
"""The row groups that this process keeps: of all data sets together."""

_files: Recent[_Mapped] = Recent(_OPEN_FILES, lambda file: 1)

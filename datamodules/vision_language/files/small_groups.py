"""Parquet files written again, in row groups that are small enough to be read in parts.

pyarrow and pandas write row groups of up to 1,048,576 rows if nobody says otherwise: of such a file every sample would
cost gigabytes.
"""

import hashlib
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING

from datamodules.vision_language.files.row_groups import KEPT, Outline, file_identity, outline, read_footer
from engine.durable_file import flush_folder, remove_leftovers, write_beside

if TYPE_CHECKING:
    from pyarrow import RecordBatch, Table
    from pyarrow.parquet import ParquetWriter

log = logging.getLogger("lockstep")

LARGEST = KEPT // 2
"""Bytes of the largest row group that is read as it is: two can be kept. So large ones are hardly mixed with others."""

MOST_ROWS = 65_536
"""Rows of the largest: where a file says each value once (as a dictionary), its bytes do not tell its size."""

GROUP_SIZE = 2 * 2**20
"""Bytes of the row groups that are written."""

_BATCH = 32  # rows that are read at once


def too_large(found: Outline) -> bool:
    """Whether a file must be written again before it can be read in parts."""
    return bool((found.sizes > LARGEST).any() or (found.rows > MOST_ROWS).any())


def rewritten(source: Path, root: str | Path, columns: Sequence[str]) -> Path:
    """What a file was written again as.

    Raises:
        ValueError: it was not yet; says what to do.
    """
    path = _place(source, root, columns)
    if not path.is_file():
        found = read_footer(source)
        rows = max(found.row_group(group).num_rows for group in range(found.num_row_groups))
        raise ValueError(
            f"{source}: its row groups of up to {rows:,} rows are too large to be read in parts (at most "
            f"{LARGEST // 2**20} MiB and {MOST_ROWS:,} rows). Run `python train.py prepare` with this configuration "
            f"once: it writes the file again, in small row groups, as {path}"
        )
    return path


def write_small_groups(source: Path, root: str | Path, columns: Sequence[str]) -> Path | None:
    """Writes some columns of a file again, in small row groups; None where that was done before.

    Memory does not grow with the file. Of several processes that do it at once one writes, the others wait.

    Raises:
        OSError: the source cannot be read, or the disk did not take it; nothing is left behind then.
    """
    from filelock import FileLock

    path = _place(source, root, columns)
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_name(f".{path.name}.lock")):
        if path.is_file():
            return None
        remove_leftovers(path.parent, ".parquet")
        size = source.stat().st_size
        log.info("%s (%.1f GB) is written again in small row groups: %s", source, size / 1e9, path)
        rows = read_footer(source).num_rows
        hidden = write_beside(path, lambda file: _copy(source, file, columns), lambda file: _check(file, rows, columns))
        hidden.replace(path)
        flush_folder(path.parent)
    return path


def _place(source: Path, root: str | Path, columns: Sequence[str]) -> Path:
    """Named after the source, what it holds, and what is taken of it."""
    digest = hashlib.sha256(f"{file_identity(source)} {GROUP_SIZE} {' '.join(columns)}".encode())
    return Path(root) / "parquet" / f"{source.stem}-{digest.hexdigest()[:16]}.parquet"


def _copy(source: Path, target: IO[bytes], columns: Sequence[str]) -> None:
    import pyarrow
    import pyarrow.parquet

    # Buffered and not fetched ahead, or it would hold whole columns of a row group.
    with pyarrow.parquet.ParquetFile(source, buffer_size=2**20, pre_buffer=False) as opened:
        schema = pyarrow.schema([opened.schema_arrow.field(column) for column in columns])
        sink = pyarrow.PythonFile(target, mode="w")
        with pyarrow.parquet.ParquetWriter(sink, schema, use_dictionary=False) as writer:
            waiting: list[RecordBatch] = []
            for batch in opened.iter_batches(_BATCH, columns=list(columns), use_threads=False):
                waiting.append(batch.select(list(columns)))
                if sum(part.nbytes for part in waiting) >= GROUP_SIZE:
                    _write(writer, pyarrow.Table.from_batches(waiting, schema))
                    waiting = []
            if waiting:
                _write(writer, pyarrow.Table.from_batches(waiting, schema))


def _write(writer: "ParquetWriter", table: "Table") -> None:
    """As one row group, or as several where the rows are large."""
    writer.write_table(table, row_group_size=max(1, 2 * GROUP_SIZE * len(table) // max(1, table.nbytes)))


def _check(path: Path, rows: int, columns: Sequence[str]) -> None:
    found = int(outline(read_footer(path), columns).rows.sum())
    if found != rows:
        raise OSError(f"{path}: {found} of {rows} rows were written; the disk did not take the rest")

"""Rewrites Parquet files with row groups that are small enough for random access.

By default pyarrow and pandas write row groups of up to 1,048,576 rows. Reading one sample of such a file would take
gigabytes of memory.
"""

import hashlib
import json
import logging
import re
from collections.abc import Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING

from datamodules.vision_language.files.parquet_row_groups import (
    CACHE_BYTES,
    RowGroupOutline,
    check_dictionaries,
    one_line,
    read_footer,
    read_outline,
)
from engine.io.atomic_file import flush_folder, remove_leftovers, write_temp
from engine.io.content_hash import ContentHashes, path_for_key
from engine.io.gitignored_folder import add_gitignore
from engine.system.installation import PROGRAM

if TYPE_CHECKING:
    from pyarrow import Field, RecordBatch, Table
    from pyarrow.parquet import ParquetWriter

log = logging.getLogger("lockstep")

LARGEST = CACHE_BYTES // 2
"""Maximum size of a row group that is read directly, in bytes; the cache holds two of them.

Large row groups are therefore hardly shuffled with each other.
"""

MAX_ROWS = 65_536
"""Maximum number of rows of a row group that is read directly.

With dictionary encoding the size in bytes does not reveal the size in memory.
"""

GROUP_SIZE = 2 * 2**20
"""Size of the row groups that are written, in bytes."""

_BATCH = 32  # rows per read
_FOLDER = "parquet"  # of the rewritten files, below the root
_REWRITTEN = re.compile(r"-[0-9a-f]{16}\.parquet$")  # end of the name of a rewritten file


def has_large_row_groups(found: RowGroupOutline) -> bool:
    """Return whether a file must be rewritten before it is read."""
    return bool((found.sizes > LARGEST).any() or (found.rows > MAX_ROWS).any())


def rewritten_folder(root: str | Path) -> Path:
    """Return the folder of the rewritten files, which need not exist."""
    return Path(root) / _FOLDER


def is_rewritten(path: Path, root: str | Path) -> bool:
    """Return whether a Parquet file is a rewritten file, by its folder and name."""
    return _REWRITTEN.search(path.name) is not None and path.resolve().parent == rewritten_folder(root).resolve()


def rewritten_path(source: Path, root: str | Path, columns: Sequence[str]) -> Path:
    """Return the path of a rewritten file.

    Raises:
        ValueError: the file has not been rewritten yet; the message states what to do.
    """
    hashes = _hashes(root)
    path = _target_path(source, root, columns, hashes)
    if not path.is_file():
        footer = read_footer(source)
        rows = max(footer.row_group(group).num_rows for group in range(footer.num_row_groups))
        raise ValueError(
            f"{source}: row groups of up to {rows:,} rows are too large to be read in parts (at most "
            f"{LARGEST // 2**20} MiB and {MAX_ROWS:,} rows). Run `{PROGRAM} prepare` once with this configuration: "
            f"it rewrites the file with small row groups as {path}"
        )
    hashes.save(path.parent)
    return path


def write_small_groups(source: Path, root: str | Path, columns: Sequence[str]) -> Path | None:
    """Rewrite some columns of a file with small row groups; return None if that was done before.

    Memory use is independent of the size of the file. If several processes call it at once, one writes and the others
    wait.

    Raises:
        OSError: the source cannot be read, or the disk rejected the file; nothing is left behind.
    """
    from filelock import FileLock

    hashes = _hashes(root)
    path = _target_path(source, root, columns, hashes)
    path.parent.mkdir(parents=True, exist_ok=True)
    add_gitignore(path.parent)
    hashes.save(path.parent)
    # The lock is for this file only, so several processes may rewrite several files at once.
    with FileLock(path.with_name(f".{path.name}.lock")):
        if path.is_file():
            return None
        remove_leftovers(path.parent, ".parquet")
        size = source.stat().st_size
        log.info("rewriting %s (%.1f GB) with small row groups to %s", source, size / 1e9, path)
        rows = read_footer(source).num_rows
        temporary = write_temp(
            path, lambda file: _copy_named(source, file, columns), lambda file: _check(file, rows, columns)
        )
        temporary.replace(path)
        flush_folder(path.parent)
    return path


def _hashes(root: str | Path) -> ContentHashes:
    return ContentHashes([rewritten_folder(root)])


def _target_path(source: Path, root: str | Path, columns: Sequence[str], hashes: ContentHashes) -> Path:
    """Return a path named after the source, its content and place, and the columns."""
    folder = rewritten_folder(root)
    identity = [path_for_key(source, folder), hashes.get(source), GROUP_SIZE, *columns]
    digest = hashlib.sha256(json.dumps(identity).encode())
    return folder / f"{source.stem}-{digest.hexdigest()[:16]}.parquet"


def _copy_named(source: Path, target: IO[bytes], columns: Sequence[str]) -> None:
    """Copy the columns; an error of pyarrow becomes an OSError that names the source."""
    import pyarrow

    try:
        _copy(source, target, columns)
    except MemoryError:  # pyarrow's is an ArrowException, too
        raise
    except (pyarrow.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # of the file system; errors of the content have no number
        raise OSError(f"{source}: is corrupt: {one_line(error)}; fetch or write it again") from error


def _copy(source: Path, target: IO[bytes], columns: Sequence[str]) -> None:
    import pyarrow
    import pyarrow.parquet

    # Buffered and without prefetching, which would hold whole columns of a row group in memory.
    with pyarrow.parquet.ParquetFile(source, buffer_size=2**20, pre_buffer=False) as opened:
        schema = pyarrow.schema([_decoded(opened.schema_arrow.field(column)) for column in columns])
        sink = pyarrow.PythonFile(target, mode="w")
        # Checksums of pages, which `RowGroups` compares at each read.
        with pyarrow.parquet.ParquetWriter(sink, schema, use_dictionary=False, write_page_checksum=True) as writer:
            waiting: list[RecordBatch] = []
            for batch in opened.iter_batches(_BATCH, columns=list(columns), use_threads=False):
                check_dictionaries(batch)
                waiting.append(batch.select(list(columns)).cast(schema))
                # Sizes are counted after decoding, because the sizes in the footer are of encoded pages.
                if sum(part.nbytes for part in waiting) >= GROUP_SIZE:
                    _write(writer, pyarrow.Table.from_batches(waiting, schema))
                    waiting = []
            if waiting:
                _write(writer, pyarrow.Table.from_batches(waiting, schema))


def _decoded(field: "Field") -> "Field":
    """Return a column as it is written: each slice of a dictionary-encoded column would count its whole dictionary."""
    from pyarrow import types

    return field.with_type(field.type.value_type) if types.is_dictionary(field.type) else field


def _write(writer: "ParquetWriter", table: "Table") -> None:
    """Write a table as a single row group, or as several if its rows are large."""
    writer.write_table(table, row_group_size=max(1, 2 * GROUP_SIZE * len(table) // max(1, table.nbytes)))


def _check(path: Path, rows: int, columns: Sequence[str]) -> None:
    found = int(read_outline(read_footer(path), columns).rows.sum())
    if found != rows:
        raise OSError(f"{path}: only {found} of {rows} rows were written")

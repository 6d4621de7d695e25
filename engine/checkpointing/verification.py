"""Verifies checkpoints: detects truncated, corrupt and unsafe files before they are loaded."""

import errno
import io
import logging
import re
import zipfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from typing_extensions import override

from engine.checkpointing.pickle_limits import find_excess
from engine.checkpointing.sharded.dcp_metadata import CorruptMetadataError, read_dcp_metadata
from engine.checkpointing.sharded.shard_manifest import MANIFEST, find_corrupt_shard
from engine.io.error_line import first_line

log = logging.getLogger("lockstep")

PROGRESS = "meta.pt"
"""File of a sharded checkpoint that holds everything except weights and optimizer state."""

_FOLDER_FLAG = 0x10  # MS-DOS directory bit of a zip member's external attributes
_MAX_DIRECTORY = 16 << 20  # bytes of a zip file's directory; torch writes about 90 for each tensor
_MAX_PICKLE = 64 << 20  # bytes of data.pkl, which holds everything except tensors
_PART = 1 << 20  # bytes of a member that are read at once


class CorruptCheckpointError(ValueError):
    """A checkpoint is truncated, corrupt, or not a checkpoint."""


def verify(path: Path) -> None:
    """Verify a checkpoint.

    A single file is read completely and compared with the CRC-32 that torch stores for each zip member. Its directory
    is checked first, so that a small file cannot cost much time or memory.

    A sharded checkpoint (a folder) is compared with its manifest. Without a manifest it was not written by this
    program, and only the sizes of its files are checked, against the index.

    Raises:
        CorruptCheckpointError: the checkpoint is not what was written; names the file and the finding.
        OSError: the checkpoint cannot be read.
    """
    if path.is_dir():
        _verify_shards(path)
        return
    with _open_checkpoint(path) as file:
        corrupt = file.testzip()
        names = file.namelist()
        # torch reads no content for a member that is flagged as a folder, and returns uninitialized memory.
        flagged = (member.filename for member in file.infolist() if member.external_attr & _FOLDER_FLAG)
        corrupt = corrupt or next(flagged, None)
    if corrupt is not None:
        raise CorruptCheckpointError(f"{path} is corrupt: {corrupt.partition('/')[2]} has changed since it was saved")
    if not any(name.endswith("/data.pkl") for name in names):
        raise CorruptCheckpointError(f"{path} is not a checkpoint: a zip file without torch's data.pkl")
    load_lazily(path)  # no CRC covers the zip directory


def verify_sizes(folder: Path) -> None:
    """Check that a sharded checkpoint has every byte that its index refers to, without reading the shards.

    Raises:
        CorruptCheckpointError: a file is missing, too short or unreadable; names the folder and the finding.
    """
    if not (folder / ".metadata").is_file():
        raise CorruptCheckpointError(f"{folder} is incomplete: .metadata, which is written last, is missing")
    verify(folder / PROGRESS)
    try:
        entries = read_dcp_metadata(folder).storage_data.values()
    except CorruptMetadataError as error:
        raise CorruptCheckpointError(str(error)) from error
    # {file: end of its last entry}; a shard must be at least as long.
    sizes: dict[str, int] = {}
    for entry in entries:
        sizes[entry.relative_path] = max(sizes.get(entry.relative_path, 0), entry.offset + entry.length)
    for name, size in sizes.items():
        shard = folder / name
        found = shard.stat().st_size if shard.is_file() else 0
        if found < size:
            raise CorruptCheckpointError(f"{folder} is incomplete: {name} has {found:,} of {size:,} bytes")


def load_lazily(path: Path) -> dict[str, Any]:
    """Return the content of a checkpoint with memory-mapped tensors, which are read on first access.

    For a sharded checkpoint, return everything except weights and optimizer state.

    Raises:
        CorruptCheckpointError: the checkpoint cannot be read, or its pickle refers to code.
        OSError: the file cannot be opened.
    """
    file = path / PROGRESS if path.is_dir() else path
    with _open_checkpoint(file) as archive:  # before torch, which would unpack compressed members
        for name in archive.namelist():
            if name.endswith("/data.pkl") and (excess := find_excess(_read_member(archive, name))):
                raise CorruptCheckpointError(f"{file} cannot be read: {excess}")
    try:
        content = torch.load(file, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:
        if isinstance(error, OSError) and error.errno != errno.EINVAL:
            raise
        foreign = re.search(r"GLOBAL (\S+)", str(error))
        if foreign:
            raise CorruptCheckpointError(f"{path} holds {foreign[1]}, which could run code: not loaded") from error
        raise CorruptCheckpointError(f"{path} cannot be read: {first_line(error)}") from error
    if not isinstance(content, dict):
        raise CorruptCheckpointError(
            f"{path} is not a checkpoint: it holds a {type(content).__name__}, expected a dict"
        )
    return content


def _verify_shards(folder: Path) -> None:
    if not any((folder / name).is_file() for name in (".metadata", PROGRESS)) and not list(folder.glob("*.distcp")):
        raise CorruptCheckpointError(f"{folder} is a folder, not a checkpoint")
    try:
        problem = find_corrupt_shard(folder) if (folder / ".metadata").is_file() else None
    except FileNotFoundError:
        log.debug("%s has no %s: only the sizes of its files are checked", folder, MANIFEST)
    else:
        if problem is not None:
            raise CorruptCheckpointError(f"{folder} is corrupt: {problem}")
    verify_sizes(folder)


@contextmanager
def _open_checkpoint(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open a checkpoint as a zip file that costs no more to read than it has bytes.

    Raises:
        CorruptCheckpointError: it is not such a file, also if reading it fails within the context.
        OSError: the file cannot be read.
    """
    try:
        with _BoundedReader(path.open("rb", buffering=0)) as content, zipfile.ZipFile(content) as file:
            _check_directory(file.infolist(), path)
            yield file
    except CorruptCheckpointError:
        raise
    except Exception as error:
        # A corrupt zip directory can raise anything. It can hold a negative offset, for which seek fails with EINVAL.
        if isinstance(error, OSError) and error.errno != errno.EINVAL:
            raise
        hint = " (truncated, or not a checkpoint)" if "not a zip" in str(error) else ""
        problem = str(error) or type(error).__name__
        raise CorruptCheckpointError(f"{path} is corrupt: {problem}{hint}, {path.stat().st_size:,} bytes") from error


class _BoundedReader(io.BufferedReader):
    """A file from which zipfile cannot read a directory that is too large to be torch's."""

    @override
    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > _MAX_DIRECTORY:
            raise ValueError(f"a directory of {size:,} bytes, expected at most {_MAX_DIRECTORY:,}")
        return super().read(size)


def _read_member(archive: zipfile.ZipFile, name: str) -> bytes:
    """Return the content of a member, in parts that are smaller than the largest directory; see `_BoundedReader`."""
    with archive.open(name) as member:
        return b"".join(iter(lambda: member.read(_PART), b""))


def _check_directory(members: list[zipfile.ZipInfo], path: Path) -> None:
    """Check that reading the members costs no more than the file has bytes.

    Raises:
        CorruptCheckpointError: a member is compressed, the members overlap, two have the same name, or the
            pickle is too large.
    """
    compressed = [member for member in members if member.compress_type != zipfile.ZIP_STORED]
    if compressed:
        raise CorruptCheckpointError(
            f"{path} is not a checkpoint: {compressed[0].filename} is compressed ({compressed[0].file_size:,} bytes "
            "unpacked), but torch.save compresses nothing"
        )
    size, total = path.stat().st_size, sum(member.file_size for member in members)
    if total > size:
        raise CorruptCheckpointError(f"{path} is corrupt: its members have {total:,} bytes, the file has {size:,}")
    names = Counter(member.filename for member in members)
    twice = [name for name, times in names.items() if times > 1]
    if twice:  # torch and zipfile read different members
        raise CorruptCheckpointError(f"{path} is not a checkpoint: it holds {twice[0]} {names[twice[0]]} times")
    for member in members:
        if member.filename.endswith("/data.pkl") and member.file_size > _MAX_PICKLE:
            raise CorruptCheckpointError(
                f"{path} is not a checkpoint: {member.filename} has {member.file_size:,} bytes, expected at most "
                f"{_MAX_PICKLE:,}; it holds everything except tensors"
            )

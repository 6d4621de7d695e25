"""Records size and CRC-32 of each file of a sharded checkpoint, since torch stores no checksums of shards."""

import json
import os
from pathlib import Path
from typing import Any

from engine.io.file_hash import crc32_file

MANIFEST = "manifest.json"


def write_manifest(folder: Path) -> None:
    """Write the manifest of all files in a folder. Call it before the folder gets the name of a checkpoint."""
    files = {
        path.relative_to(folder).as_posix(): {"size": path.stat().st_size, "crc32": crc32_file(path)}
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != MANIFEST
    }
    # Flushed here, because torch flushes its own files only.
    with (folder / MANIFEST).open("w") as file:
        json.dump({"files": files}, file, indent=1)
        file.flush()
        os.fsync(file.fileno())


def find_corrupt_shard(folder: Path) -> str | None:
    """Compare a folder with its manifest.

    Returns:
        name of the first file that differs and how it differs, or None if all files match.

    Raises:
        FileNotFoundError: the folder has no manifest.
        OSError: a file cannot be read.
    """
    text = (folder / MANIFEST).read_bytes()
    try:
        files: dict[str, dict[str, Any]] = json.loads(text)["files"]
        expected = {name: (int(file["size"]), int(file["crc32"])) for name, file in files.items()}
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:  # int(inf) overflows
        return f"{MANIFEST} cannot be read ({error!r})"
    for name, (size, _) in expected.items():  # sizes first: they cost no reading
        found = (folder / name).stat().st_size if (folder / name).is_file() else 0
        if found != size:
            return f"{name} has {found:,} of {size:,} bytes"
    for name, (_, crc32) in expected.items():
        if crc32_file(folder / name) != crc32:
            return f"{name} has changed since it was saved"
    return None

"""What a sharded checkpoint consists of: size and CRC-32 of every file, as torch stores none for shards."""

import json
import os
import zlib
from pathlib import Path
from typing import Any

MANIFEST = "manifest.json"

_CHUNK = 1 << 22  # bytes read at once


def write_manifest(folder: Path) -> None:
    """Reads the folder through and writes what is in it; to be called before anybody may take it for a checkpoint."""
    files = {
        path.relative_to(folder).as_posix(): {"size": path.stat().st_size, "crc32": _crc32(path)}
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != MANIFEST
    }
    with (folder / MANIFEST).open("w") as file:
        json.dump({"files": files}, file, indent=1)
        file.flush()
        os.fsync(file.fileno())


def changed(folder: Path) -> str | None:
    """What is not as the manifest says: a file's name and what is the matter with it; None when all is.

    Raises:
        FileNotFoundError: there is no manifest.
        OSError: a file cannot be read.
    """
    text = (folder / MANIFEST).read_bytes()
    try:
        files: dict[str, dict[str, Any]] = json.loads(text)["files"]
        expected = {name: (int(file["size"]), int(file["crc32"])) for name, file in files.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return f"{MANIFEST} cannot be read ({error!r})"
    for name, (size, _) in expected.items():  # before gigabytes are read
        found = (folder / name).stat().st_size if (folder / name).is_file() else 0
        if found != size:
            return f"{name} has {found:,} of {size:,} bytes"
    for name, (_, crc32) in expected.items():
        if _crc32(folder / name) != crc32:
            return f"{name} has changed since it was saved"
    return None


def _crc32(path: Path) -> int:
    crc = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            crc = zlib.crc32(chunk, crc)
    return crc

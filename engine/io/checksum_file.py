"""Writes and verifies SHA256SUMS, the list of checksums of a directory, in the format of the program sha256sum."""

import os
import re
from pathlib import Path

from engine.io.file_hash import hash_file

CHECKSUM_FILE = "SHA256SUMS"
"""Name of the list. `sha256sum --check SHA256SUMS` in the directory verifies it without Lockstep."""


def write_checksums(folder: Path) -> None:
    """Write the SHA-256 of each file of a directory and its subdirectories into CHECKSUM_FILE.

    Raises:
        OSError: a file cannot be read, or the list cannot be written.
    """
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    lines = [f"{hash_file(files[name])}  {name}\n" for name in sorted(files.keys() - {CHECKSUM_FILE})]
    with (folder / CHECKSUM_FILE).open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(lines)
        file.flush()
        os.fsync(file.fileno())


def verify_checksums(folder: Path) -> None:
    """Verify each file that CHECKSUM_FILE lists. Do nothing without the list.

    Raises:
        ValueError: a file is missing or its content changed, or a line of the list is no checksum.
        OSError: a file cannot be read.
    """
    try:
        text = (folder / CHECKSUM_FILE).read_text(encoding="utf-8")
    except FileNotFoundError:
        return
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{folder / CHECKSUM_FILE}: found bytes that are not UTF-8, expected text; copy the directory again"
        ) from error
    for number, line in enumerate(text.removesuffix("\n").split("\n"), 1):
        # Before the name a space, or the * of `sha256sum --binary`.
        expected, name = line[:64].lower(), line[66:]
        if not re.fullmatch("[0-9a-f]{64}", expected) or line[64:66] not in ("  ", " *") or not name:
            raise ValueError(
                f"{folder / CHECKSUM_FILE}, line {number}: found {line[:80]!r}, expected a SHA-256, two spaces and a "
                "file name; copy the directory again"
            )
        path = folder / name
        found = hash_file(path) if path.is_file() else "no file"
        if found != expected:
            raise ValueError(
                f"{path}: found {found[:12]}, expected the SHA-256 {expected[:12]} of {CHECKSUM_FILE}; copy the "
                "directory again, or repeat the export"
            )

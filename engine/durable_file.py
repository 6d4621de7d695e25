"""A file that is there whole or not at all, whatever stops the process that writes it.

It is written beside its place under a hidden name that no search for checkpoints takes, flushed to the disk, checked,
and only then renamed; the rename is flushed too. A rename inside one folder is atomic; what is written elsewhere (in
/tmp, as Lightning does it) and moved is not.
"""

import logging
import os
import shutil
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import psutil

log = logging.getLogger("lockstep")

_SUFFIX = ".new"
_FORGOTTEN = 3600.0  # seconds without a write after which another machine's file belongs to nobody


def beside(path: Path, purpose: str = "") -> Path:
    """Where this process writes what is to become `path`: `.last.ckpt.HOST.PROCESS.new` beside `last.ckpt`."""
    return path.with_name(f".{path.name}{purpose and '.' + purpose}.{_host()}.{os.getpid()}{_SUFFIX}")


def _host() -> str:
    return socket.gethostname().replace(".", "-")


def write_beside(path: Path, write: Callable[[IO[bytes]], None], check: Callable[[Path], None]) -> Path:
    """Writes, flushes and checks; returns the hidden file, which `os.replace` may put into its place.

    Raises:
        OSError: the disk did not take it; nothing is left of it then, nor after an error of `write` or `check`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    hidden = beside(path)
    try:
        with hidden.open("wb") as file:
            watched = _Watched(file)
            try:
                write(watched)  # type: ignore[arg-type]
            except Exception as error:
                # torch wraps what the disk said into "unexpected pos 704 vs 598".
                raise watched.error or error from None
            file.flush()
            os.fsync(file.fileno())
        check(hidden)
    except BaseException:
        remove(hidden)
        raise
    return hidden


def flush_folder(folder: Path) -> None:
    """Makes renames in a folder survive a power cut; Windows does so by itself."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove(path: Path) -> None:
    """Deletes a file or folder, if it is there. A failure is said and does no harm."""
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        log.warning("could not delete %s: %s", path, error)


def remove_leftovers(folder: Path, kind: str = ".ckpt") -> list[str]:
    """Deletes what killed writers left in a folder of files of a kind, and nothing that somebody may still be writing;
    names of it.
    """
    removed = []
    for path in folder.glob(f".*{kind}.*.*{_SUFFIX}") if folder.is_dir() else ():
        host, process = path.name.removesuffix(_SUFFIX).rsplit(".", 2)[1:]
        if not process.isdigit() or _being_written(path, host, int(process)):
            continue
        remove(path)
        removed.append(path.name)
    return removed


def _being_written(path: Path, host: str, process: int) -> bool:
    if host == _host():
        return psutil.pid_exists(process) and process != os.getpid()
    try:
        return time.time() - path.stat().st_mtime < _FORGOTTEN
    except FileNotFoundError:
        return False


class _Watched:
    """A file that remembers the first error."""

    closed = False  # whoever writes may ask

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self.error = file, None

    def write(self, data: Any) -> int:
        try:
            return self._file.write(data)
        except OSError as error:
            self.error = self.error or error
            raise

    def flush(self) -> None:
        self._file.flush()

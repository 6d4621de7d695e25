"""Writes files and directories atomically: each is complete under its name, or does not exist.

The content is written to a hidden temporary path in the same folder, flushed to the disk, checked, and then renamed;
the rename is flushed too. A rename is atomic only within one file system, so files are never moved from /tmp.
"""

import logging
import os
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import psutil

log = logging.getLogger("lockstep")

_SUFFIX = ".new"
_ABANDONED_SECONDS = 3600.0  # a temporary file of another host without a write for this long has no writer


def temp_path(path: Path, purpose: str = "") -> Path:
    """Return the path that this process writes to before it renames: `.last.ckpt.HOST.PID.new` for `last.ckpt`."""
    return path.with_name(f".{path.name}{purpose and '.' + purpose}.{_host()}.{os.getpid()}{_SUFFIX}")


def write_temp(path: Path, write: Callable[[IO[bytes]], object], check: Callable[[Path], None]) -> Path:
    """Write, flush and check a temporary file.

    Args:
        path: final path of the file. Its folder is created.
        write: writes the content to an open file.
        check: raises an error if the written file is not valid.

    Returns:
        The temporary path. `os.replace` it to `path`, then call `flush_folder`.

    Raises:
        OSError: the disk refused the content. After any error the temporary file is deleted.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = temp_path(path)
    try:
        with temporary.open("wb") as file:
            recorder = _ErrorRecorder(file)
            try:
                write(recorder)  # type: ignore[arg-type]  # has the methods of a file that writers use
            except Exception as error:
                # torch hides the disk's error behind "unexpected pos 704 vs 598".
                raise recorder.error or error from None
            file.flush()
            os.fsync(file.fileno())
        check(temporary)
    except BaseException:
        remove(temporary)
        raise
    return temporary


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file that is complete under its name, or absent, or as it was, also after a power failure.

    Raises:
        OSError: the disk refused the content; an existing file is unchanged.
    """
    replace_file(path, lambda file: file.write(content))


def replace_file(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Write a file as `write_atomically` does, with a function that writes the content to an open file."""
    temporary = write_temp(path, write, lambda _: None)
    try:
        os.replace(temporary, path)
    except OSError:
        remove(temporary)
        raise
    flush_folder(path.parent)


@contextmanager
def atomic_directory(folder: Path) -> Iterator[Path]:
    """Yield a temporary directory that is flushed and renamed to `folder` at the end, or deleted after an error.

    Raises:
        FileExistsError: `folder` exists.
    """
    if folder.exists():
        raise FileExistsError(f"{folder} exists already; expected a new directory")
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = temp_path(folder)
    # A killed process with the same PID may have left it.
    remove(temporary)
    temporary.mkdir()
    try:
        yield temporary
        flush_tree(temporary)
        os.rename(temporary, folder)
    except BaseException:
        remove(temporary)
        raise
    flush_folder(folder.parent)


def flush_tree(folder: Path) -> None:
    """Flush a folder with all its files and folders to the disk, and give them the permissions of the umask.

    Some writers (safetensors, tempfile.mkdtemp) make files or folders that only their owner can read.
    """
    mask = os.umask(0)  # the only way to read the mask is to set it
    os.umask(mask)
    for path in (folder, *folder.rglob("*")):
        if path.is_dir():
            path.chmod(0o777 & ~mask)
            flush_folder(path)
        else:
            path.chmod(0o666 & ~mask)
            with path.open("rb+") as file:
                os.fsync(file.fileno())


def flush_folder(folder: Path) -> None:
    """Flush the entries of a folder, so that renames survive a power failure. Does nothing on Windows."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove(path: Path) -> None:
    """Delete a file or folder, if it exists. Logs a failure instead of raising it."""
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        log.warning("could not delete %s: %s", path, error)


def remove_leftovers(folder: Path, kind: str = ".ckpt") -> list[str]:
    """Delete temporary files of killed processes, but none that a process may still be writing.

    Args:
        folder: folder of the files; it need not exist.
        kind: suffix of the final files.

    Returns:
        Names of the deleted files.
    """
    removed = []
    for path in folder.glob(f".*{kind}.*.*{_SUFFIX}") if folder.is_dir() else ():
        host, pid = path.name.removesuffix(_SUFFIX).rsplit(".", 2)[1:]
        if not pid.isdigit() or _has_writer(path, host, int(pid)):
            continue
        remove(path)
        removed.append(path.name)
    return removed


def _has_writer(path: Path, host: str, pid: int) -> bool:
    if host == _host():
        # This process has not written yet, so a file with its PID is of an earlier process.
        return psutil.pid_exists(pid) and pid != os.getpid()
    # On a shared file system only the age shows whether a process of another host still writes.
    try:
        return time.time() - path.stat().st_mtime < _ABANDONED_SECONDS
    except FileNotFoundError:
        return False


def _host() -> str:
    return socket.gethostname().replace(".", "-")  # the parts of a temporary name are separated by dots


class _ErrorRecorder:
    """A file that keeps the first error of its writes."""

    closed = False  # some writers read it

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.error: OSError | None = None

    def write(self, data: Any) -> int:
        try:
            return self._file.write(data)
        except OSError as error:
            self.error = self.error or error
            raise

    def flush(self) -> None:
        self._file.flush()

"""A directory that is there whole or not at all, whatever stops the process that writes it."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from engine.durable_file import beside, flush_folder, remove

log = logging.getLogger("lockstep")


@contextmanager
def new_directory(folder: Path) -> Iterator[Path]:
    """Gives a folder to write to, which becomes `folder` when all is on the disk; nothing of it stays otherwise.

    Raises:
        FileExistsError: there is something at `folder` already.
    """
    if folder.exists():
        raise FileExistsError(f"{folder} is there already; export writes a new directory")
    folder.parent.mkdir(parents=True, exist_ok=True)
    hidden = beside(folder)
    remove(hidden)
    hidden.mkdir()
    try:
        yield hidden
        _flush(hidden)
        os.rename(hidden, folder)
    except BaseException:
        remove(hidden)
        raise
    flush_folder(folder.parent)
    log.info("exported to %s", folder)


def _flush(folder: Path) -> None:
    mask = os.umask(0)
    os.umask(mask)
    for path in folder.rglob("*"):
        if path.is_file():
            path.chmod(0o666 & ~mask)  # safetensors' files are for their owner alone
            with path.open("rb+") as file:
                os.fsync(file.fileno())
        else:
            flush_folder(path)
    flush_folder(folder)

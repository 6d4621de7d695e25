"""Checks names of runs, and creates the directory of all runs. Imports no torch."""

import os
from pathlib import Path

from commands.runs.runs_option import OPTION
from engine.io.ignored_folder import make_ignored_folder

_MAX_NAME_BYTES = 200
"""Largest number of bytes of a run name. File systems have 255; trackers and temporary files add to it."""


def check_run_name(name: str) -> None:
    """Check that a name is one directory, on every file system and in every message.

    Raises:
        ValueError: it is a path, too long, empty, begins with `-`, or has a character that is not printable.
    """
    if not name or Path(name).name != name or "\\" in name or name == "..":
        raise ValueError(f"--run_name is a name, not a path; got {name!r}")
    problem = ""
    if not name.isprintable() or name != name.strip():
        problem = "printable characters, no space at its ends"
    elif name.startswith("-"):
        problem = "another first character than -, which begins an option"
    elif len(os.fsencode(name)) > _MAX_NAME_BYTES:
        problem = f"at most {_MAX_NAME_BYTES} bytes"
    if problem:
        found = repr(name) if len(name) < 80 else f"{name[:70]!r} and {len(name) - 70} more characters"
        raise ValueError(f"--run_name: expected {problem}; got {found}")


def check_directory(path: Path) -> None:
    """Check that a path is a directory or does not exist.

    Raises:
        NotADirectoryError: it is a file, or a link to nothing.
    """
    if path.is_symlink() and not path.exists():
        raise NotADirectoryError(
            f"{path} is a link to {os.readlink(path)}, which does not exist: create it or remove the link"
        )
    if path.exists() and not path.is_dir():
        raise NotADirectoryError(f"{path} is a file; expected a directory: move the file away")


def make_runs_folder(runs: Path) -> None:
    """Create the directory of all runs, which git ignores, unless it exists.

    Raises:
        NotADirectoryError: a file or a dangling link has its name.
        FileNotFoundError: its parent does not exist.
        PermissionError: it cannot be created, or is not writable.
    """
    check_directory(runs)
    if not runs.is_dir():
        if not runs.parent.is_dir():
            raise FileNotFoundError(
                f"{runs}: its parent directory {runs.parent} does not exist: create it, or name another directory "
                f"with {OPTION} DIR"
            )
        try:
            make_ignored_folder(runs)
        except OSError as error:
            raise PermissionError(
                f"{runs} cannot be created ({error.strerror}): name another directory with {OPTION} DIR"
            ) from error
    if not os.access(runs, os.W_OK | os.X_OK):
        raise PermissionError(f"{runs} is not writable: name another directory with {OPTION} DIR")

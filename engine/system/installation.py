"""Locates the installation: a checkout of the repository, or the packages of an environment."""

import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
"""Folder of the packages: the checkout, or the environment's site-packages."""

SOURCES = ("train.py", "commands", "callbacks", "engine", "datamodules", "lightning_modules", "configs")
"""Parts of PROJECT that a training runs. In site-packages, PROJECT contains other packages too."""

SETUP = PROJECT / "setup.cfg"
"""Exists only in a checkout."""

_IS_LOCKSTEP_COMMAND = Path(sys.argv[0]).stem == "lockstep" or not SETUP.is_file()

PROGRAM = "lockstep" if _IS_LOCKSTEP_COMMAND else "python train.py"
"""What the user types before the name of a command."""

SCRIPT = "--no-python lockstep" if _IS_LOCKSTEP_COMMAND else "train.py"
"""The same as an argument of torchrun."""


def package_version(package: str) -> str | None:
    """Return the version of an installed package; None if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def checkout_commit(project: Path = PROJECT) -> str:
    """Return the checkout's commit, with `-dirty` if there are changes. Empty outside of a checkout or without git."""
    if not (project / SETUP.name).is_file():  # git would find a repository that contains the environment
        return ""
    command = ["git", "-C", str(project), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""

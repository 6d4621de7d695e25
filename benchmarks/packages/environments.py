"""Installs an environment for each compared package, because the packages need older libraries than this project.

requirements/NAME.txt pins every version. An environment is created at the first use and kept; other requirements or
another Python create a new environment.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from filelock import FileLock

from benchmarks.variant_process import ONE_THREAD

ENVIRONMENTS = Path(__file__).resolve().parents[2] / ".benchmarks"
"""Default folder of the environments; not in git."""

_REQUIREMENTS = Path(__file__).with_name("requirements")


class NotInstalled(Exception):
    """A package's environment could not be created; with pip's output."""


def environment_folder(package: str, folder: Path) -> Path:
    """Return the environment's folder."""
    # A hash of both in the name: changed requirements or another Python get an environment of their own.
    contents = requirements_of(package).read_bytes() + sys.version.encode()
    return folder / f"{package}-{sha256(contents).hexdigest()[:10]}"


def requirements_of(package: str) -> Path:
    """Return the file with the package's requirements."""
    return _REQUIREMENTS / f"{package}.txt"


def python_of(package: str, folder: Path) -> Path | None:
    """Return the Python of the package's environment, or None if it is not complete."""
    environment = environment_folder(package, folder)
    return environment / "bin" / "python" if _stamp(environment).exists() else None


def install_environment(package: str, folder: Path) -> Path:
    """Return the Python of the package's environment, and create it if it does not exist.

    Raises:
        NotInstalled: the environment could not be created, or a package could not be installed.
    """
    environment = environment_folder(package, folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Two benchmarks may start at once; the second waits and finds the environment complete.
        with FileLock(folder / f"{package}.lock"):
            if python_of(package, folder) is None:
                shutil.rmtree(environment, ignore_errors=True)  # left by an interrupted attempt
                _run([sys.executable, "-m", "venv", str(environment)], package)
                python = str(environment / "bin" / "python")
                listed = str(requirements_of(package))
                _run([python, "-m", "pip", "install", "--quiet", "--retries", "2", "--requirement", listed], package)
                # The last step: a folder without the stamp is incomplete, whatever it contains.
                _stamp(environment).touch()
    except OSError as error:
        raise NotInstalled(f"{package}: no environment in {folder}: {error}") from error
    return environment / "bin" / "python"


def own_variables(**more: str) -> dict[str, str]:
    """Return the variables of a process in such an environment: without this project, a single thread."""
    ours = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    # PYTHONPATH would let a package's process import this project's newer libraries.
    kept = {name: value for name, value in os.environ.items() if name not in ours}
    return kept | ONE_THREAD | {"PYTHONNOUSERSITE": "1"} | more


def _stamp(environment: Path) -> Path:
    return environment / "installed"


def _run(command: Sequence[str], package: str) -> None:
    result = subprocess.run(command, capture_output=True, text=True, env=own_variables())
    if result.returncode:
        lines = (result.stderr.strip() or result.stdout.strip()).splitlines()
        errors = [line for line in lines if line.startswith("ERROR")] or lines[-3:]
        raise NotInstalled(
            f"{package} could not be installed: `{' '.join(command)}` ended with {result.returncode}:\n"
            + "\n".join(errors)
        )

"""Names runs after their configs, checks names, and creates the directory of all runs. Imports no torch."""

import os
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

import yaml

from commands.runs.runs_option import OPTION
from engine.io.gitignored_folder import make_gitignored_folder
from engine.io.yaml_file import parse_yaml

TIME_OR_JOB = r"(-\d{8}-\d{6}(-\d+)?|-job\d+(-step\d+)?)"
"""Suffix of a default run name, after the stem of its config."""

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


def make_runs_directory(runs: Path) -> None:
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
            make_gitignored_folder(runs)
        except OSError as error:
            raise PermissionError(
                f"{runs} cannot be created ({error.strerror}): name another directory with {OPTION} DIR"
            ) from error
    if not os.access(runs, os.W_OK | os.X_OK):
        raise PermissionError(f"{runs} is not writable: name another directory with {OPTION} DIR")


def config_stem(config: Path, runs: Path) -> str:
    """Return the family and the name of a config: `configs/recommender/sasrec.yaml` -> `recommender-sasrec`.

    The config of a run, `runs/recommender-sasrec-20260101-120000/config.yaml`, has the stem of that run.
    """
    if is_of_a_run(config, runs):
        return re.sub(f"{TIME_OR_JOB}$", "", config.resolve().parent.name)
    return f"{config.resolve().parent.name}-{config.stem}"


def experiment_stem(configs: Sequence[Path], runs: Path) -> str:
    """Return the stem of several merged configs: `vision_language-quickstart_sft+no_pretrain`.

    Overlays (`configs/overlays`) are omitted: they state how an experiment is run, not which experiment.
    """
    first, *others = configs
    merged = [config.stem for config in others if not is_overlay(config)]
    return "+".join([config_stem(first, runs), *merged])


def is_overlay(config: Path) -> bool:
    """Return whether a config sets how any run is run, instead of describing a run."""
    return config.resolve().parent.name == "overlays"


def changes_a_config(config: Path) -> bool:
    """Return whether a config is an overlay, or an ablation config: in a folder `ablation`, without model and data.

    Both are given after the config of a training. A file in such a folder that names classes may be a whole config.
    """
    if is_overlay(config):
        return True
    if config.resolve().parent.name != "ablation":
        return False
    try:
        return not _names_a_class(parse_yaml(config.read_text(encoding="utf-8"), str(config)))
    except (OSError, ValueError, yaml.YAMLError):
        return False  # the parser names the file and the error


def _names_a_class(config: object) -> bool:
    """Return whether settings name the class of the model or the data: `class_path` below it, or `model: NAME`."""
    for key, value in config.items() if isinstance(config, Mapping) else ():
        group, _, option = str(key).partition(".")
        has_path = option == "class_path" or (isinstance(value, Mapping) and "class_path" in value)
        if group in ("model", "data") and (has_path or (not option and isinstance(value, str))):
            return True
    return False


def is_of_a_run(config: Path, runs: Path) -> bool:
    """Return whether a config lies in a run directory."""
    # `Path.resolve` raises RuntimeError at a loop of symbolic links; the first access to the files names it.
    return Path(os.path.realpath(config)).parent.parent == Path(os.path.realpath(runs))


def claim_run_name(stem: str, runs: Path, environ: Mapping[str, str]) -> str:
    """Return a name for a new run: stem and time, or stem and job number under SLURM, which a requeue keeps.

    Creates the directory unless the name is a job's, so that runs started in the same second have different names.
    """
    if in_slurm_job(environ):
        step = environ.get("SLURM_STEP_ID", "0")
        return f"{stem}-job{environ['SLURM_JOB_ID']}" + (f"-step{step}" if step.isdigit() and step != "0" else "")
    first = f"{stem}-{datetime.now():%Y%m%d-%H%M%S}"
    make_runs_directory(runs)
    number, name = 1, first
    while True:
        try:
            # Atomic: of several processes, only the first gets the name.
            (runs / name).mkdir()
            return name
        except FileExistsError:
            number += 1
            name = f"{first}-{number}"


def in_slurm_job(environ: Mapping[str, str]) -> bool:
    """Return whether this is a SLURM job, not an interactive shell on a node."""
    return "SLURM_JOB_ID" in environ and environ.get("SLURM_JOB_NAME") not in ("bash", "interactive")

"""Reads and writes run directories: finds them, keeps their configs, and refuses to overwrite them."""

import logging
import re
import shutil
from pathlib import Path

from callbacks.trackers.tracker_keys import TRACKER_KEYS
from commands.runs.run_configs import config_number, numbered_configs
from commands.runs.run_lock import RUNNING
from commands.runs.run_names import TIME_OR_JOB
from engine.checkpointing.discovery import CHECKPOINTS, saved_at
from engine.io.atomic_file import write_atomically
from engine.system.installation import PROGRAM

log = logging.getLogger("lockstep")

BEGINNING = ".beginning.json"
"""File in the run directory: the checkpoints that existed when the user, not the launcher, started the run."""

_START_FILES = (".lock", BEGINNING, RUNNING, "train.log", "metrics.jsonl", "environment.json", "faults", *TRACKER_KEYS)
_WRITTEN_BEFORE_TRAINING = re.compile("|".join(map(re.escape, _START_FILES)) + r"|log(-\d+)?\.jsonl")

_ATTEMPTS = 3
"""Attempts to remove a directory into which other processes may still write."""


def newest_run(stem: str, runs: Path, option: str = "--run_name NAME or --ckpt_path FILE") -> str:
    """Return the name of the newest run of a config that has a checkpoint.

    Args:
        stem: see `run_names.experiment_stem`.
        runs: the directory of all runs.
        option: option that selects another run, for the message.

    Raises:
        FileNotFoundError: no run of the config has a checkpoint.
    """
    saved = (path for name in ("best.ckpt", "last.ckpt") for path in runs.glob(f"*/{CHECKPOINTS}/{name}"))
    names = {path: path.parent.parent.name for path in saved}
    run_name_pattern = re.compile(re.escape(stem) + TIME_OR_JOB)
    candidates = [path for path, name in names.items() if run_name_pattern.fullmatch(name)]
    if not candidates:
        similar = sorted({name for name in names.values() if name.startswith(stem)})
        raise FileNotFoundError(
            f"no trained run of this config in {runs}/ ({stem}-TIME): train one first ({PROGRAM} fit --config "
            f"...), or name one with {option}" + (f"; runs of other configs: {', '.join(similar)}" if similar else "")
        )
    name = max(candidates, key=saved_at).parent.parent.name
    log.info("using the newest run of this config: %s", name)
    return name


def checkpoint_names(directory: Path) -> str:
    """Return the names of all checkpoints of a run, separated by commas, for messages."""
    paths = [*(directory / CHECKPOINTS).glob("*.ckpt"), *directory.glob("hpc_ckpt_*.ckpt")]
    return ", ".join(sorted(path.name for path in paths))


def refuse_occupied(directory: Path) -> None:
    """Raise if the directory holds a run with checkpoints, which a new run would overwrite.

    Raises:
        FileExistsError: names the options to choose from.
    """
    if checkpoint_names(directory):
        raise FileExistsError(
            f"{directory} already holds a run with checkpoints: resume it (--ckpt_path last), choose another "
            "--run_name, or remove the directory"
        )


def remove_untrained_run(directory: Path) -> None:
    """Remove the directory of a start that was refused, if it contains only files that a start writes.

    A directory without a run would look like a run. Only the process that created the directory calls this, while it
    holds the lock.
    """
    for _ in range(_ATTEMPTS):  # another rank may still be writing its last log lines
        try:
            # Training writes config.yaml before anything else, so without it there is nothing to resume.
            if all(_WRITTEN_BEFORE_TRAINING.fullmatch(path.name) for path in directory.iterdir()):
                for path in directory.iterdir():
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
                directory.rmdir()
            return
        except OSError as error:
            log.debug("%s is not removed: %s", directory, error)


def newest_config(directory: Path) -> Path | None:
    """Return the config with which a run was last trained; None if it has none."""
    configs = numbered_configs(directory)
    return configs[-1] if configs else None


def write_config(text: str, directory: Path) -> Path:
    """Write the config of a run; a resume with a changed config writes config-2.yaml, config-3.yaml, ..."""
    directory.mkdir(parents=True, exist_ok=True)
    newest = newest_config(directory)
    if newest is not None and newest.read_text(encoding="utf-8") == text:
        return newest
    number = 1 if newest is None else (config_number(newest) or 1) + 1
    path = directory / ("config.yaml" if number == 1 else f"config-{number}.yaml")
    write_atomically(path, text.encode())
    return path

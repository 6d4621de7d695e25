"""Selects the checkpoint that a command begins with."""

import json
import logging
from pathlib import Path

from commands.runs.run_directory import BEGINNING, checkpoint_names, newest_run
from commands.runs.run_names import config_stem
from engine.checkpointing.discovery import (
    CHECKPOINTS,
    find_corruption,
    first_valid,
    list_checkpoints,
    newest_verified,
    saved_at,
)
from engine.checkpointing.verification import CorruptCheckpointError, verify
from engine.io.atomic_file import write_atomically
from engine.io.json_records import describe_value, parse_json
from engine.system.installation import PROJECT

log = logging.getLogger("lockstep")


def resolve_checkpoint(ckpt_path: str | None, directory: Path) -> Path | None:
    """Return the file that `--ckpt_path` means for the run in `directory`; None to start from initial weights.

    `last` is the newest checkpoint that verifies: last.ckpt or its predecessors, best.ckpt, step-N.ckpt, or the
    checkpoint that plain Lightning saved when SLURM preempted the job. For a run without checkpoints `last` is None, so
    that the same command starts a run and resumes it. `best` is best.ckpt, or `last` for a run that has never
    validated.

    Raises:
        FileNotFoundError: the file does not exist; lists the checkpoints of the run.
        CorruptCheckpointError: `last`, or `best` without best.ckpt, and no checkpoint of the run is intact.
    """
    if ckpt_path is None:
        return None
    checkpoints = directory / CHECKPOINTS
    if ckpt_path == "last":
        newest = newest_verified(directory)
        if newest is not None:
            return newest
        if existing := checkpoint_names(directory):
            raise FileNotFoundError(
                f"{checkpoints}/last.ckpt does not exist, but there are {existing}: name one with --ckpt_path FILE"
            )
        log.info("%s has no checkpoint yet: starting at step 0", directory)
        return None
    path = checkpoints / "best.ckpt" if ckpt_path == "best" else Path(ckpt_path)
    if ckpt_path == "best" and not path.exists() and (newest := newest_verified(directory)):
        log.warning("%s does not exist, as no validation has saved it: using %s", path, newest.name)
        return newest
    if not path.exists():
        existing = checkpoint_names(directory)
        hint = (
            f"but in {directory} there is {existing}: name one with --ckpt_path FILE" if existing else "nor any other"
        )
        raise FileNotFoundError(f"checkpoint {path} does not exist, {hint}")
    if not (path.is_file() or path.is_dir()):  # reading a device or a pipe may never end
        raise CorruptCheckpointError(f"--ckpt_path {path} is not a regular file, expected a checkpoint")
    return path


def earlier_stage(init_from: str, runs: Path) -> Path:
    """Return the checkpoint that `model.init_args.init_from` means.

    Args:
        init_from: a checkpoint; a run, whose best (else newest intact) checkpoint is used; or a config, whose newest
            run is.
        runs: the directory of all runs.

    Raises:
        FileNotFoundError: there is no such checkpoint, run or config.
        CorruptCheckpointError: the checkpoint does not verify.
    """
    path = Path(init_from)
    if path.suffix in (".yaml", ".yml"):
        if not path.is_file() and not (PROJECT / path).is_file():  # a shipped config names another shipped config
            raise FileNotFoundError(f"model.init_args.init_from: there is no config {path}")
        path = runs / newest_run(config_stem(path, runs), runs, "--model.init_args.init_from NAME or FILE")
    elif not path.exists() and len(path.parts) == 1:
        path = runs / path
    if (path / CHECKPOINTS).is_dir():
        path = _best_or_newest(path)
    is_sharded = path.is_dir() and path.parent.name == CHECKPOINTS
    if not (path.is_file() or is_sharded):
        trained = sorted({file.parent.parent.name for file in runs.glob(f"*/{CHECKPOINTS}/*.ckpt")})
        raise FileNotFoundError(
            f"model.init_args.init_from: {init_from} is not a checkpoint, a run with checkpoints or a config; "
            f"runs that have checkpoints: {', '.join(trained) or 'none'}"
        )
    verify(path)
    return path


def _best_or_newest(folder: Path) -> Path:
    """Return best.ckpt of a run, else its newest intact checkpoint, else one that does not verify or exist."""
    best = folder / CHECKPOINTS / "best.ckpt"
    if best.exists():
        return best
    checkpoints = list_checkpoints(folder)
    newest, _ = first_valid(checkpoints, find_corruption)
    return newest or next(iter(checkpoints), best)


def record_existing_checkpoints(directory: Path) -> None:
    """Record which checkpoints exist when the user starts a run, for `newest_checkpoint_since_start` at a restart."""
    saved = [saved_at(path) for path in list_checkpoints(directory)]
    write_atomically(directory / BEGINNING, json.dumps({"saved_at": saved}).encode())


def newest_checkpoint_since_start(directory: Path) -> Path | None:
    """Return the newest checkpoint that verifies, if the run saved it after the user started the run; else None.

    A launcher that restarts a run repeats its command, which may name an older checkpoint. Checkpoints are compared by
    the time that they contain, because files are renamed and replaced.

    Raises:
        ValueError: the record of the beginning is corrupt; names the file.
    """
    try:
        newest = newest_verified(directory)
    except CorruptCheckpointError as error:
        log.warning("%s", error)
        return None
    before = _recorded_beginning(directory / BEGINNING)
    return None if newest is None or saved_at(newest) in before else newest


def _recorded_beginning(path: Path) -> list[float]:
    """Return when the checkpoints were saved that existed when the user started the run."""
    if not path.exists():
        return []
    try:
        times = parse_json(path.read_bytes())["saved_at"]
        if not isinstance(times, list) or any(isinstance(time, (bool, str)) for time in times):
            raise TypeError(f"found {describe_value(times)}")
        return [float(time) for time in times]
    except (ValueError, LookupError, TypeError, OverflowError) as error:
        raise ValueError(
            f'{path}: cannot be read ({error}); expected {{"saved_at": [seconds, ...]}}. Delete it to resume from the '
            "newest checkpoint"
        ) from error

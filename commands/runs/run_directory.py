"""Creates run directories: names them, keeps their configs, and refuses to overwrite them."""

import logging
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

from commands.runs.run_lock import RUNNING
from commands.runs.run_names import make_runs_folder
from engine.checkpointing.discovery import CHECKPOINTS, saved_at
from engine.system.installation import PROGRAM

log = logging.getLogger("lockstep")

BEGINNING = ".beginning.json"
"""File in the run directory: the checkpoints that existed when the user, not the launcher, started the run."""

_TIME_OR_JOB = r"(-\d{8}-\d{6}(-\d+)?|-job\d+(-step\d+)?)"
"""Suffix of a default run name, after the stem of its config."""

_WRITTEN_BEFORE_TRAINING = re.compile(
    "|".join(map(re.escape, (".lock", BEGINNING, RUNNING, "train.log", "metrics.jsonl", "environment.json", "faults")))
    + r"|log(-\d+)?\.jsonl|mlflow|wandb"
)

_ATTEMPTS = 3
"""Attempts to remove a directory into which other processes may still write."""


def config_stem(config: Path, runs: Path) -> str:
    """Return the family and the name of a config: `configs/recommender/sasrec.yaml` -> `recommender-sasrec`.

    The config of a run, `runs/recommender-sasrec-20260101-120000/config.yaml`, has the stem of that run.
    """
    if is_of_a_run(config, runs):
        return re.sub(f"{_TIME_OR_JOB}$", "", config.resolve().parent.name)
    return f"{config.resolve().parent.name}-{config.stem}"


def experiment_stem(configs: Sequence[Path], runs: Path) -> str:
    """Return the stem of several merged configs: `vision_language-quickstart_sft+no_pretrain`.

    Overlays (`configs/overlays`) are omitted: they state how an experiment is run, not which experiment.
    """
    first, *others = configs
    merged = [config.stem for config in others if config.resolve().parent.name != "overlays"]
    return "+".join([config_stem(first, runs), *merged])


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
    make_runs_folder(runs)
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


def newest_run(stem: str, runs: Path, option: str = "--run_name NAME or --ckpt_path FILE") -> str:
    """Return the name of the newest run of a config that has a checkpoint.

    Args:
        stem: see `experiment_stem`.
        runs: the directory of all runs.
        option: option that selects another run, for the message.

    Raises:
        FileNotFoundError: no run of the config has a checkpoint.
    """
    saved = (path for name in ("best.ckpt", "last.ckpt") for path in runs.glob(f"*/{CHECKPOINTS}/{name}"))
    names = {path: path.parent.parent.name for path in saved}
    run_name_pattern = re.compile(re.escape(stem) + _TIME_OR_JOB)
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
    numbered = {int(number): path for path in directory.glob("config-*.yaml") if (number := _parse_config_number(path))}
    first = directory / "config.yaml"
    return numbered[max(numbered)] if numbered else first if first.is_file() else None


def write_config(text: str, directory: Path) -> Path:
    """Write the config of a run; a resume with a changed config writes config-2.yaml, config-3.yaml, ..."""
    directory.mkdir(parents=True, exist_ok=True)
    newest = newest_config(directory)
    if newest is not None and newest.read_text(encoding="utf-8") == text:
        return newest
    number = 1 if newest is None else int(_parse_config_number(newest) or 1) + 1
    path = directory / ("config.yaml" if number == 1 else f"config-{number}.yaml")
    replace_text(text, path)
    return path


def replace_text(text: str, path: Path) -> None:
    """Write a file so that a reader sees the old text or the new text, never a part."""
    temporary = path.with_suffix(f"{path.suffix}.new")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


def _parse_config_number(config: Path) -> str | None:
    match = re.fullmatch(r"config-(\d+)", config.stem)
    return match[1] if match else None

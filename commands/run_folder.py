"""Where a run keeps its files: its name, and the checkpoints and configs in its folder."""

import json
import logging
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path

from commands.unended import NOTE
from engine.checkpoint_file import CHECKPOINTS, DamagedCheckpoint, candidates, newest_verified, saved_at, verify

log = logging.getLogger("lockstep")

RUNS = Path("runs")

_PROJECT = Path(__file__).parents[1]

_BEGINNING = ".beginning.json"
"""In a run's folder: the checkpoints that were there when somebody, not the launcher, started the run."""

_TIME_OR_JOB = r"(-\d{8}-\d{6}(-\d+)?|-job\d+(-step\d+)?)"
"""What a run's name has after the stem of its config."""

_WRITTEN_BEFORE_TRAINING = re.compile(
    "|".join(map(re.escape, (".lock", _BEGINNING, NOTE, "train.log", "metrics.jsonl", "environment.json", "faults")))
    + r"|log(-\d+)?\.jsonl|mlflow|wandb"
)

_ATTEMPTS = 3
"""To remove a folder into which others still write."""


def config_stem(config: Path, runs: Path = RUNS) -> str:
    """`configs/recommender/sasrec.yaml` -> `recommender-sasrec`: the family and the config's name.

    A config that a run has kept, `runs/recommender-sasrec-20260101-120000/config.yaml`, has the stem of that run.
    """
    if is_of_a_run(config, runs):
        return re.sub(f"{_TIME_OR_JOB}$", "", config.resolve().parent.name)
    return f"{config.resolve().parent.name}-{config.stem}"


def experiment_stem(configs: Sequence[Path], runs: Path = RUNS) -> str:
    """The stem of several configs laid over each other: `vision_language-quickstart_sft+no_pretrain`.

    Overlays (`configs/overlays`) say how an experiment is run, not which one it is.
    """
    first, *others = configs
    laid_over = [config.stem for config in others if config.resolve().parent.name != "overlays"]
    return "+".join([config_stem(first, runs), *laid_over])


def is_of_a_run(config: Path, runs: Path = RUNS) -> bool:
    """Whether a config lies in a run's folder."""
    return config.resolve().parent.parent == runs.resolve()


def claim_run_name(stem: str, runs: Path = RUNS, environ: Mapping[str, str] = os.environ) -> str:
    """A fresh run's default name: family, config and time, or under SLURM the job's number, which a requeue keeps.

    Of several runs that start in the same second each gets a folder of its own.
    """
    if in_slurm_job(environ):
        step = environ.get("SLURM_STEP_ID", "0")
        return f"{stem}-job{environ['SLURM_JOB_ID']}" + (f"-step{step}" if step.isdigit() and step != "0" else "")
    first = f"{stem}-{datetime.now():%Y%m%d-%H%M%S}"
    runs.mkdir(parents=True, exist_ok=True)
    number, name = 1, first
    while True:
        try:
            (runs / name).mkdir()
            return name
        except FileExistsError:
            number += 1
            name = f"{first}-{number}"


def in_slurm_job(environ: Mapping[str, str]) -> bool:
    """Whether this is a SLURM job with a number of its own, not a shell that somebody opened on a node."""
    return "SLURM_JOB_ID" in environ and environ.get("SLURM_JOB_NAME") not in ("bash", "interactive")


def newest_run(stem: str, runs: Path = RUNS, how_to_name: str = "--run_name NAME or --ckpt_path FILE") -> str:
    """The newest run of a config that has a checkpoint.

    Args:
        how_to_name: another one, for the message.

    Raises:
        FileNotFoundError: when there is none.
    """
    saved = (path for name in ("best.ckpt", "last.ckpt") for path in runs.glob(f"*/{CHECKPOINTS}/{name}"))
    trained = {path: path.parent.parent.name for path in saved}
    of_config = re.compile(re.escape(stem) + _TIME_OR_JOB)
    found = [path for path, name in trained.items() if of_config.fullmatch(name)]
    if not found:
        alike = sorted({name for name in trained.values() if name.startswith(stem)})
        raise FileNotFoundError(
            f"no trained run of this config in {runs}/ ({stem}-TIME): train one first (python train.py fit --config "
            f"...), or name one with {how_to_name}"
            + (f"; with other configs there are {', '.join(alike)}" if alike else "")
        )
    name = max(found, key=saved_at).parent.parent.name
    log.info("taking the newest run of this config: %s", name)
    return name


def resolve_checkpoint(ckpt_path: str | None, folder: Path) -> Path | None:
    """The file that `--ckpt_path` means for the run in `folder`; None to start from untrained weights.

    `last` is what was saved last and is whole: last.ckpt or one before it, best.ckpt, or what Lightning saved when
    SLURM took the nodes away. In a run without checkpoints it means the beginning, so that the same command starts a
    run and goes on with it.

    Raises:
        FileNotFoundError: with the checkpoints that there are.
        DamagedCheckpoint: `last`, and none of the checkpoints that there are is whole.
    """
    if ckpt_path is None:
        return None
    checkpoints = folder / CHECKPOINTS
    if ckpt_path == "last":
        newest = newest_verified(folder)
        if newest is not None:
            return newest
        if others := _listing(folder):
            raise FileNotFoundError(
                f"{checkpoints}/last.ckpt does not exist, but there are {others}: name one with --ckpt_path FILE"
            )
        log.info("%s has no checkpoint yet: starting at step 0", folder)
        return None
    path = checkpoints / "best.ckpt" if ckpt_path == "best" else Path(ckpt_path)
    if not path.exists():
        others = _listing(folder)
        hint = f"but in {folder} there is {others}: name one with --ckpt_path FILE" if others else "nor any other"
        raise FileNotFoundError(f"checkpoint {path} does not exist, {hint}")
    return path


def earlier_stage(given: str, runs: Path = RUNS) -> Path:
    """The checkpoint that `init_from` means: itself, or the best (else the last) one of a run or a config's newest run.

    Raises:
        FileNotFoundError: there is none.
        DamagedCheckpoint: it is not whole.
    """
    path = Path(given)
    if path.suffix in (".yaml", ".yml"):
        if not path.is_file() and not (_PROJECT / path).is_file():  # a shipped config names another one from there
            raise FileNotFoundError(f"model.init_args.init_from: there is no config {path}")
        path = runs / newest_run(config_stem(path, runs), runs, "--model.init_args.init_from NAME or FILE")
    elif not path.exists() and len(path.parts) == 1:
        path = runs / path
    if (path / CHECKPOINTS).is_dir():
        kept = [path / CHECKPOINTS / name for name in ("best.ckpt", "last.ckpt")]
        path = next((checkpoint for checkpoint in kept if checkpoint.exists()), kept[0])
    if not path.exists() or path.is_dir() and path.parent.name != CHECKPOINTS:
        there = ", ".join(sorted({file.parent.parent.name for file in runs.glob(f"*/{CHECKPOINTS}/*.ckpt")})) or "none"
        raise FileNotFoundError(
            f"model.init_args.init_from: {given} is no checkpoint, no run with checkpoints and no config; runs that "
            f"have checkpoints: {there}"
        )
    verify(path)
    return path


def refuse_occupied(folder: Path) -> None:
    """A fresh start must not overwrite a run."""
    if _listing(folder):
        raise FileExistsError(
            f"{folder} already holds a run with checkpoints: go on with it (--ckpt_path last), "
            "choose another --run_name, or remove the folder"
        )


def remove_refused(folder: Path) -> None:
    """Removes the folder of a start that was refused for wrong input, if it has nothing but what a start writes.

    What was refused has been said; a folder without a run would only look like one. To be called by the process that
    has made the folder, while it holds the lock.
    """
    for _ in range(_ATTEMPTS):  # another process of the run may be writing its last words into the folder
        try:
            # Training writes config.yaml first of all, so a folder without it has nothing to go on from.
            if all(_WRITTEN_BEFORE_TRAINING.fullmatch(path.name) for path in folder.iterdir()):
                for path in folder.iterdir():
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
                folder.rmdir()
            return
        except OSError as error:
            log.debug("%s is left behind: %s", folder, error)


def note_beginning(folder: Path) -> None:
    """To be called when somebody starts the run, for `newest_since_begun` when the launcher starts it again."""
    before = [saved_at(path) for path in candidates(folder)]
    _write(json.dumps({"saved_at": before}), folder / _BEGINNING)


def newest_since_begun(folder: Path) -> Path | None:
    """The newest checkpoint that is whole, if the run has saved it since somebody started it by hand.

    A run that went back to an older checkpoint (`--ckpt_path FILE` or `best`) must not go on with the newer ones that
    it was to leave behind. They are told by the time that they hold themselves: files are renamed and replaced.
    """
    try:
        newest = newest_verified(folder)
    except DamagedCheckpoint as error:
        log.warning("%s", error)
        return None
    beginning = folder / _BEGINNING
    before = json.loads(beginning.read_text(encoding="utf-8"))["saved_at"] if beginning.exists() else []
    return None if newest is None or saved_at(newest) in before else newest


def newest_config(folder: Path) -> Path | None:
    """The config that a run was last trained with; None if it has none."""
    numbered = {int(path.stem[len("config-") :]): path for path in folder.glob("config-*.yaml") if _number(path)}
    first = folder / "config.yaml"
    return numbered[max(numbered)] if numbered else first if first.is_file() else None


def write_config(text: str, folder: Path) -> Path:
    """Keeps the config beside the run; a resume with another config gets a file of its own (config-2.yaml, ...)."""
    folder.mkdir(parents=True, exist_ok=True)
    newest = newest_config(folder)
    if newest is not None and newest.read_text(encoding="utf-8") == text:
        return newest
    number = 1 if newest is None else int(_number(newest) or 1) + 1
    path = folder / ("config.yaml" if number == 1 else f"config-{number}.yaml")
    _write(text, path)
    return path


def _write(text: str, path: Path) -> None:
    beside = path.with_suffix(f"{path.suffix}.new")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)


def _number(config: Path) -> str | None:
    match = re.fullmatch(r"config-(\d+)", config.stem)
    return match[1] if match else None


def _listing(folder: Path) -> str:
    found = [*(folder / CHECKPOINTS).glob("*.ckpt"), *folder.glob("hpc_ckpt_*.ckpt")]
    return ", ".join(sorted(path.name for path in found))

"""Where a run keeps its files: its name, decided once for all processes, and the checkpoints in its folder."""

import logging
import os
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path

from callbacks.checkpointing import CHECKPOINTS

log = logging.getLogger("lockstep")

RUNS = Path("runs")
_AGREED = "LOCKSTEP_RUN_NAME"


def config_stem(config: Path) -> str:
    """`configs/recommender/sasrec.yaml` -> `recommender-sasrec`: the family and the config's name."""
    return f"{config.resolve().parent.name}-{config.stem}"


def new_run_name(stem: str, environ: Mapping[str, str] = os.environ) -> str:
    """A fresh run's default name: family, config and time (under SLURM the job id), the same on all processes.

    Raises:
        ValueError: when processes were started apart from each other and have nothing to agree through.
    """
    if "SLURM_JOB_ID" in environ and environ.get("SLURM_JOB_NAME") not in ("bash", "interactive"):
        return f"{stem}-job{environ['SLURM_JOB_ID']}"  # the same after a requeue as well
    name = f"{stem}-{datetime.now():%Y%m%d-%H%M%S}"
    if "TORCHELASTIC_RUN_ID" in environ:
        return _agree_through_store(name, environ)
    if environ.get("LOCAL_RANK", "0") != "0" and _AGREED in environ:
        return environ[_AGREED]  # started by the first process, which decided
    if int(environ.get("WORLD_SIZE", "1")) > 1 and "LOCAL_RANK" in environ and _AGREED not in environ:
        raise ValueError(
            "the processes of this run were started apart from each other and cannot agree on a default name: "
            "give all of them the same --run_name NAME"
        )
    os.environ[_AGREED] = name  # for the processes that this one starts
    return name


def _agree_through_store(name: str, environ: Mapping[str, str]) -> str:
    """torchrun's workers start at slightly different times; the first to reach the agent's store decides."""
    from torch.distributed import TCPStore

    store = TCPStore(
        environ["MASTER_ADDR"], int(environ["MASTER_PORT"]), is_master=False, timeout=timedelta(seconds=60)
    )
    return store.compare_set("lockstep/run_name", "", name).decode()


def newest_run(stem: str, runs: Path = RUNS) -> str:
    """The newest run of a config that has a checkpoint, for commands that evaluate one.

    Raises:
        FileNotFoundError: when there is none.
    """
    found = [path for path in runs.glob(f"{stem}-*/{CHECKPOINTS}/*.ckpt") if path.name in ("best.ckpt", "last.ckpt")]
    if not found:
        raise FileNotFoundError(
            f"no trained run of this config in {runs}/ ({stem}-*): train one first (python train.py fit --config ...), "
            "or name one with --run_name NAME or --ckpt_path FILE"
        )
    name = max(found, key=lambda path: path.stat().st_mtime).parent.parent.name
    log.info("taking the newest run of this config: %s", name)
    return name


def resolve_checkpoint(ckpt_path: str | None, folder: Path) -> Path | None:
    """The file that `--ckpt_path` means for the run in `folder`; None to start from untrained weights.

    `last` in a run without checkpoints means its beginning, so the same command starts a run and goes on with it.

    Raises:
        FileNotFoundError: with the checkpoints that there are.
    """
    if ckpt_path is None:
        return None
    checkpoints = folder / CHECKPOINTS
    if ckpt_path == "last":
        last = checkpoints / "last.ckpt"
        if last.is_file():
            return last
        others = _listing(checkpoints)
        if others:
            raise FileNotFoundError(f"{last} does not exist, but there are {others}: name one with --ckpt_path FILE")
        log.info("%s has no checkpoint yet: starting at step 0", folder)
        return None
    path = checkpoints / "best.ckpt" if ckpt_path == "best" else Path(ckpt_path)
    if not path.is_file():
        others = _listing(checkpoints)
        hint = f"but in {checkpoints} there is {others}: name one with --ckpt_path FILE" if others else "nor any other"
        raise FileNotFoundError(f"checkpoint {path} does not exist, {hint}")
    return path


def refuse_occupied(folder: Path) -> None:
    """A fresh start must not overwrite a run."""
    if _listing(folder / CHECKPOINTS):
        raise FileExistsError(
            f"{folder} already holds a run with checkpoints: go on with it (--ckpt_path last), "
            "choose another --run_name, or remove the folder"
        )


def write_config(text: str, folder: Path) -> Path:
    """Keeps the config beside the run; a resume with another config gets a file of its own (config-2.yaml, ...)."""
    folder.mkdir(parents=True, exist_ok=True)
    number, path = 1, folder / "config.yaml"
    while path.exists():
        if path.read_text(encoding="utf-8") == text:
            return path
        number += 1
        path = folder / f"config-{number}.yaml"
    beside = path.with_suffix(".yaml.new")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)
    return path


def _listing(checkpoints: Path) -> str:
    return ", ".join(sorted(path.name for path in checkpoints.glob("*.ckpt"))) if checkpoints.is_dir() else ""

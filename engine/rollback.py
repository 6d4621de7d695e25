"""Going back to the weights of a run's newest good checkpoint while the run goes on."""

from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from torch.optim import Optimizer

from engine.checkpoints import newest_verified
from engine.faults import AgreedFailure


def roll_back(trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer, reason: str) -> tuple[Path, int]:
    """Weights, buffers and the optimizer's state of the newest checkpoint that verifies; called by every process.

    Step count, schedule, order of the samples and callbacks stay where they are. Frozen parameters may be absent from
    the file. Returns the file and the step that it was saved after.

    Raises:
        AgreedFailure: there is no checkpoint, or a process cannot load it; begins with `reason`.
    """
    finish_writing = getattr(trainer.strategy.checkpoint_io, "finish_writing", None)
    if finish_writing is not None:
        finish_writing()  # the newest may still be on its way to the disk
    found = _newest(Path(trainer.default_root_dir)) if trainer.is_global_zero else None
    path, problem = trainer.strategy.broadcast(found)  # all take the one that the first process names
    if path is None:
        raise AgreedFailure(f"{reason}\nThere is no checkpoint to roll back to: {problem}")
    checkpoint, problem = _load(trainer, pl_module, path)
    problems = _gathered(problem)
    if any(problems):
        said = "; ".join(f"process {process}: {problem}" for process, problem in enumerate(problems) if problem)
        raise AgreedFailure(f"{reason}\nNo rollback to {path}: {said}")
    pl_module.load_state_dict(checkpoint["state_dict"], strict=False)
    settings = [{key: value for key, value in group.items() if key != "params"} for group in optimizer.param_groups]
    optimizer.load_state_dict(checkpoint["optimizer_states"][0])
    for group, setting in zip(optimizer.param_groups, settings, strict=True):
        group.update(setting)  # the rate is the schedule's, which goes on
    return Path(path), checkpoint["global_step"]


def _newest(folder: Path) -> tuple[str | None, str]:
    """The newest good checkpoint of the run, or why there is none: the other processes wait for the answer."""
    try:
        found = newest_verified(folder)
    except Exception as error:
        return None, str(error)
    return (str(found), "") if found else (None, f"{folder} has none yet")


def _load(trainer: Trainer, pl_module: LightningModule, path: str) -> tuple[dict[str, Any], str | None]:
    """The checkpoint, or why it is of no use here: the other processes wait for the answer."""
    try:
        checkpoint = dict(trainer.strategy.load_checkpoint(path, weights_only=True))
        weights = checkpoint["state_dict"]
        trained = {name: parameter for name, parameter in pl_module.named_parameters() if parameter.requires_grad}
        missing = [name for name in trained if name not in weights]
        broken = [name for name in trained if name in weights and not weights[name].isfinite().all()]
    except Exception as error:
        return {}, f"{type(error).__name__}: {error}"
    if missing:
        return {}, f"it lacks {missing[0]}"
    return checkpoint, f"{broken[0]} is not finite in it" if broken else None


def _gathered(problem: str | None) -> list[str | None]:
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return [problem]
    everywhere: list[str | None] = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(everywhere, problem)
    return everywhere

"""Rolls a training run back to the weights of its newest good checkpoint."""

import logging
from pathlib import Path
from typing import Any

from lightning.pytorch import LightningModule, Trainer
from torch.optim import Optimizer

from engine.checkpointing.checkpoint_io import VerifiedCheckpointIO
from engine.checkpointing.discovery import first_valid, list_checkpoints, saved_at
from engine.distributed.collectives import all_gather_objects
from engine.distributed.errors import CollectiveError
from engine.optim.row_table import is_trained

log = logging.getLogger("lockstep")


def roll_back(trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer, reason: str) -> tuple[Path, int]:
    """Load weights, buffers and optimizer state of the newest good checkpoint. Call it on all ranks.

    Only checkpoints that this start of the run has saved or resumed from are considered: other checkpoints in the
    run's folder may belong to another trajectory. Checkpoints that are corrupt, lack a trained weight or hold a
    non-finite weight are skipped. Step count, learning rate schedule, sample order and callbacks do not change. Frozen
    parameters may be absent from the checkpoint.

    Args:
        trainer: of the run; its strategy must use `VerifiedCheckpointIO`.
        pl_module: module to load into.
        optimizer: optimizer to load into.
        reason: why the run rolls back, for the message.

    Returns:
        the checkpoint and the step after which it was saved.

    Raises:
        CollectiveError: there is no such checkpoint. Raised on all ranks.
    """
    plugin = trainer.strategy.checkpoint_io
    assert isinstance(plugin, VerifiedCheckpointIO)
    plugin.finish_writing()  # an asynchronous save may still be writing the newest checkpoint
    # Rank 0 decides: its view of a shared folder may be ahead of the other ranks'.
    paths = trainer.strategy.broadcast(_own_checkpoints(trainer, plugin) if trainer.is_global_zero else [])
    checkpoint: dict[str, Any] = {}

    def find_problem(path: Path) -> str | None:
        nonlocal checkpoint
        checkpoint, problem = _load(trainer, pl_module, path)
        # A checkpoint counts only if every rank can load it, so that all ranks choose the same.
        problems = all_gather_objects(problem)
        return "; ".join(f"rank {rank}: {problem}" for rank, problem in enumerate(problems) if problem) or None

    path, skipped = first_valid(map(Path, paths), find_problem)
    if path is None:
        none = f"{trainer.default_root_dir} has no checkpoint of this start yet"
        why = f"not to {'; '.join(skipped)}" if skipped else none
        raise CollectiveError(f"{reason}\nThere is no checkpoint to roll back to: {why}")
    # strict is off: frozen weights may be absent. `_load` has refused a checkpoint without a trained weight.
    pl_module.load_state_dict(checkpoint["state_dict"], strict=False)
    # The learning rate belongs to the schedule, which is not rolled back.
    settings = [{key: value for key, value in group.items() if key != "params"} for group in optimizer.param_groups]
    optimizer.load_state_dict(checkpoint["optimizer_states"][0])
    for group, setting in zip(optimizer.param_groups, settings, strict=True):
        group.update(setting)
    return path, checkpoint["global_step"]


def _own_checkpoints(trainer: Trainer, plugin: VerifiedCheckpointIO) -> list[str]:
    """Return the checkpoints that this start has saved or resumed from, newest first."""
    checkpoints = list_checkpoints(Path(trainer.default_root_dir))
    if trainer.ckpt_path is not None and Path(trainer.ckpt_path).exists():
        checkpoints.append(Path(trainer.ckpt_path))  # it may be of another run
    return [str(path) for path in checkpoints if saved_at(path) in plugin.trajectory]


def _load(trainer: Trainer, pl_module: LightningModule, path: Path) -> tuple[dict[str, Any], str | None]:
    """Return a checkpoint and None, or why it cannot be used. Never raises: the other ranks wait for the result."""
    try:
        checkpoint = dict(trainer.strategy.load_checkpoint(path, weights_only=True))
        weights = checkpoint["state_dict"]
        trained = [name for name, parameter in pl_module.named_parameters() if is_trained(parameter)]
        missing = [name for name in trained if name not in weights]
        non_finite = [name for name in trained if name in weights and not weights[name].isfinite().all()]
    except Exception as error:
        return {}, f"{type(error).__name__}: {error}"
    if missing:
        return {}, f"it lacks {missing[0]}"
    return checkpoint, f"{non_finite[0]} is not finite in it" if non_finite else None

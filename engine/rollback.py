"""Going back to the weights of a run's newest good checkpoint while the run goes on."""

import logging
from pathlib import Path
from typing import Any

from lightning.pytorch import LightningModule, Trainer
from torch.optim import Optimizer

from engine.checkpoint_file import candidates, saved_at
from engine.checkpoints import DurableCheckpointIO
from engine.events import event
from engine.faults import AgreedFailure
from engine.gather import gathered_objects

log = logging.getLogger("lockstep")


def roll_back(trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer, reason: str) -> tuple[Path, int]:
    """Weights, buffers and the optimizer's state of the newest good checkpoint; called by every process.

    It is one that this start of the run has saved, or the one that it goes on from: others in the run's folder may be
    of another trajectory, and of a later step. Passed over is what does not verify, lacks a weight, or has one that is
    not finite. Step count, schedule, order of the samples and callbacks stay where they are. Frozen parameters may be
    absent from the file. Returns the file and the step that it was saved after.

    Raises:
        AgreedFailure: there is no such checkpoint; begins with `reason`.
    """
    plugin = trainer.strategy.checkpoint_io
    assert isinstance(plugin, DurableCheckpointIO)
    plugin.finish_writing()  # the newest may still be on its way to the disk
    # All take those that the first process names.
    paths = trainer.strategy.broadcast(_of_this_start(trainer, plugin) if trainer.is_global_zero else [])
    passed_over = []
    for path in paths:
        checkpoint, problem = _load(trainer, pl_module, path)
        problems = gathered_objects(problem)
        if not any(problems):
            break
        said = "; ".join(f"process {process}: {problem}" for process, problem in enumerate(problems) if problem)
        passed = event("checkpoint_passed_over", path=path, reason=said)
        log.warning("no rollback to %s: %s", path, said, extra=passed)
        passed_over.append(f"{path} ({said})")
    else:
        none = f"{trainer.default_root_dir} has none yet of this start"
        why = f"not to {'; '.join(passed_over)}" if passed_over else none
        raise AgreedFailure(f"{reason}\nThere is no checkpoint to roll back to: {why}")
    pl_module.load_state_dict(checkpoint["state_dict"], strict=False)
    settings = [{key: value for key, value in group.items() if key != "params"} for group in optimizer.param_groups]
    optimizer.load_state_dict(checkpoint["optimizer_states"][0])
    for group, setting in zip(optimizer.param_groups, settings, strict=True):
        group.update(setting)  # the rate is the schedule's, which goes on
    return Path(path), checkpoint["global_step"]


def _of_this_start(trainer: Trainer, plugin: DurableCheckpointIO) -> list[str]:
    """The checkpoints that this start has saved and the one that it goes on from, the newest first."""
    found = candidates(Path(trainer.default_root_dir))
    if trainer.ckpt_path is not None and Path(trainer.ckpt_path).exists():
        found.append(Path(trainer.ckpt_path))  # perhaps of another run
    return [str(path) for path in found if saved_at(path) in plugin.trajectory]


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

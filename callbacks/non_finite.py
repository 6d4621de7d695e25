"""Says where a gradient that is not finite comes from: which process, which samples, which parameters."""

import logging

import torch
from lightning.pytorch import LightningModule, Trainer

from engine.gather import gathered

log = logging.getLogger("lockstep")

_SAMPLES, _PARAMETERS = 16, 3  # how many are named on the screen; train.log has all samples


def describe(trainer: Trainer, pl_module: LightningModule, norm: float) -> str:
    """What is known about the step under way. Called by every process: their losses are gathered."""
    step, epoch = trainer.global_step + 1, trainer.current_epoch
    batch = (trainer.fit_loop.epoch_loop.batch_progress.current.ready - 1) // trainer.accumulate_grad_batches
    lines = [f"step {step} (epoch {epoch}, global batch {batch} of it): the gradient is not finite, its norm is {norm}"]
    broken = torch.stack([~loss.isfinite() for loss in pl_module.losses_of_step])
    everywhere = gathered(broken.int()).tolist()
    for process, micro_batches in enumerate(everywhere):
        for micro_batch, samples in zip(micro_batches, _samples(trainer, process), strict=False):
            if micro_batch:
                lines.append(f"the loss on process {process} is not finite; its samples: {_some(samples)}")
                log.debug("step %d: non-finite loss on process %d, samples %s", step, process, samples)
    if len(lines) == 1:
        lines.append("every process has a finite loss, so it arose in the backward pass")
        for process in range(trainer.world_size):
            log.debug("step %d: process %d had samples %s", step, process, _samples(trainer, process))
    return "\n".join([*lines, _parameters(pl_module)])


def _samples(trainer: Trainer, process: int) -> list[list[int]]:
    draws = trainer.datamodule.samples_of_step(process)  # type: ignore[attr-defined]
    return [[int(index) for index in indices] for indices in draws]


def _some(samples: list[int]) -> str:
    more = f" and {len(samples) - _SAMPLES} more (see train.log)" if len(samples) > _SAMPLES else ""
    return ", ".join(map(str, samples[:_SAMPLES])) + more


def _parameters(pl_module: LightningModule) -> str:
    """The first parameters in which the gradient is not finite, in the order of the model."""
    trained = [(name, parameter.grad) for name, parameter in pl_module.named_parameters() if parameter.grad is not None]
    names = [name for name, gradient in trained if not gradient.isfinite().all()]
    if not names:
        return "every gradient is finite by itself: their squares overflow"
    more = f" and {len(names) - _PARAMETERS} more" if len(names) > _PARAMETERS else ""
    return f"gradients that are not finite: {', '.join(names[:_PARAMETERS])}{more} (of {len(trained)})"

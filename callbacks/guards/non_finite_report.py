"""Describes where a gradient that is NaN or infinite comes from: rank, samples and parameters."""

import logging

import torch
from lightning.pytorch import Trainer

from engine.distributed.collectives import all_gather_tensor
from engine.distributed.data_parallel_rank import data_parallel_rank
from engine.io.name_list import join_names
from engine.lightning_internals.training_loop import micro_batch_index
from engine.module import LockstepModule
from engine.run_trainer import as_run_trainer

log = logging.getLogger("lockstep")

_MAX_SAMPLES, _MAX_PARAMETERS = 16, 3  # that a message names; train.log has all samples


def describe_non_finite(trainer: Trainer, pl_module: LockstepModule, norm: float) -> str:
    """Describe where a non-finite gradient comes from: rank, samples and parameters. A collective.

    Args:
        trainer: of the run.
        pl_module: module after the backward pass of the step.
        norm: norm of the gradient.
    """
    step, epoch = trainer.global_step + 1, trainer.current_epoch
    batch = micro_batch_index(trainer) // trainer.accumulate_grad_batches
    lines = [f"step {step} (epoch {epoch}, global batch {batch} of it): the gradient is not finite, its norm is {norm}"]
    width = trainer.world_size // data_parallel_rank(trainer).size  # ranks that read the same samples
    # [micro-batches] on this rank; gathered: [world size, micro-batches]
    is_broken = torch.stack([~loss.isfinite() for loss in pl_module.losses_of_step])
    for rank, micro_batches in enumerate(all_gather_tensor(is_broken.int()).tolist()):
        if not any(micro_batches):
            continue
        for broken, samples in zip(micro_batches, _samples(trainer, rank // width), strict=False):
            if broken:
                lines.append(f"the loss on rank {rank} is not finite; its samples: {_first_samples(samples)}")
                log.debug("step %d: non-finite loss on rank %d, samples %s", step, rank, samples)
    if len(lines) == 1:
        lines.append("every rank has a finite loss, so it arose in the backward pass")
        for rank in range(trainer.world_size):
            log.debug("step %d: rank %d had samples %s", step, rank, _samples(trainer, rank // width))
    return "\n".join([*lines, _non_finite_parameters(pl_module)])


def _samples(trainer: Trainer, rank: int) -> list[list[int]]:
    """Return the sample indices of each micro-batch of the step on a rank."""
    micro_batches = as_run_trainer(trainer).datamodule.samples_of_step(rank)
    return [[int(index) for index in indices] for indices in micro_batches]


def _first_samples(samples: list[int]) -> str:
    return join_names(samples, _MAX_SAMPLES, " (see train.log)")


def _non_finite_parameters(pl_module: LockstepModule) -> str:
    """Name the first parameters with a non-finite gradient, in the order of the model."""
    # The gradient of a table's rows is on the parameter `touched`, not on the weight.
    touched = {table.weight: table.touched for table in pl_module.row_tables}
    named_gradients = [(name, touched.get(weight, weight).grad) for name, weight in pl_module.named_parameters()]
    gradients = [(name, gradient) for name, gradient in named_gradients if gradient is not None]
    names = [name for name, gradient in gradients if not gradient.isfinite().all()]
    if not names:
        return "every gradient is finite by itself: their squares overflow"
    return f"gradients that are not finite: {join_names(names, _MAX_PARAMETERS)} (of {len(gradients)})"

"""Finds the largest micro-batch that fits into GPU memory, before training (`trainer.auto_micro_batch`)."""

import gc
import logging
from collections.abc import Sequence

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy
from torch import Tensor, nn
from typing_extensions import override

from callbacks.health.oom_advice import FORWARD, describe_peak_memory, oom_message
from callbacks.health.watchdog import extended_timeout
from callbacks.performance.trial_pass import trial_pass
from callbacks.performance.trial_samples import largest_samples
from engine.data.batch_plan import BatchPlan
from engine.datamodule import LockstepDataModule
from engine.distributed.collectives import all_reduce_min
from engine.distributed.errors import CollectiveError
from engine.lightning_internals.training_loop import configure_model
from engine.module import LockstepModule, as_lockstep_module
from engine.optim.optimizers import OPTIMIZERS, state_size
from engine.optim.parameter_groups import embedding_weights
from engine.optim.row_updates import state_shapes
from engine.run_trainer import as_run_trainer
from engine.system.oom import is_oom_error

log = logging.getLogger("lockstep")


class AutoMicroBatch(Callback):
    """Sets `data.micro_batch_size` to the largest micro-batch that fits on every rank.

    The first candidate is the rank's share of the global batch, or `data.micro_batch_size` if it is set. Each next
    candidate is half of the previous candidate. It fits if two forward and backward passes succeed while gradients,
    optimizer state and DDP's buffers are allocated. The samples are the largest of the training set if it has
    `sample_costs`, otherwise the samples of the largest of the first micro-batches.

    Each rank runs its passes without collectives, so a rank that runs out of memory blocks no other. After each
    candidate the ranks agree on whether it fits everywhere.

    Training afterwards is bit-identical to training with the same `data.micro_batch_size` set by hand.

    Args:
        if_possible: log a warning instead of raising if no candidate can be tried: on a CPU, with sharded weights, or
            with a loss of the whole batch.
    """

    def __init__(self, if_possible: bool = False) -> None:
        self.if_possible = if_possible

    @override
    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if stage != "fit":
            return
        module = as_lockstep_module(pl_module)
        reason = _reason_not_possible(trainer, module)
        if reason and not self.if_possible:
            raise ValueError(f"trainer.auto_micro_batch is not possible: {reason}")
        if reason:
            if trainer.is_global_zero:
                log.warning("trainer.auto_micro_batch has no effect: %s", reason)
            return
        data = as_run_trainer(trainer).datamodule
        configure_model(trainer)  # Lightning repeats the call after setup; configure_model is idempotent
        plan: BatchPlan | None = data.plan
        while plan is not None:
            # `data.plan` follows from it; the value stays if the candidate fits.
            data.micro_batch_size = plan.micro_batch_size
            with extended_timeout(trainer, f"start-up, micro-batches of {plan.micro_batch_size}"):
                fits, memory = self._try_plan(trainer, module, data)
            if fits:
                log.info("auto_micro_batch: %d samples fit (peak %s)", plan.micro_batch_size, memory)
                return
            log.info("auto_micro_batch: %d samples do not fit", plan.micro_batch_size)
            plan = plan.halved()
        # All ranks have the same plans and agree on each, so all of them raise.
        raise CollectiveError(f"auto_micro_batch: not even one sample fits\n{memory}")

    @staticmethod
    def _try_plan(trainer: Trainer, pl_module: LockstepModule, data: LockstepDataModule) -> tuple[bool, str]:
        """Return whether the plan's micro-batch fits on all ranks, and the peak memory or how to reduce it."""
        device, size = trainer.strategy.root_device, data.plan.micro_batch_size
        batch, fits = None, True
        try:
            batch = largest_samples(data, size)
            _two_passes(trainer, pl_module, batch)
            memory = describe_peak_memory(device)
        except Exception as error:
            # Any other error is one of the data or the model, which fewer samples do not fix.
            if not is_oom_error(error):
                raise
            # No collective here: other ranks may still compute. They agree below.
            fits, memory = False, oom_message(trainer, pl_module, FORWARD, batch)
        del batch  # before the cache is freed
        free_cached_memory(device)
        # The rank with the least free memory decides.
        return bool(all_reduce_min(fits, device)), memory


def reports_oom(device: torch.device) -> bool:
    """Return whether running out of memory raises an error. On a CPU the kernel kills the process instead."""
    return device.type != "cpu"


def free_cached_memory(device: torch.device) -> None:
    """Collect garbage, return cached blocks to the GPU and reset its peak, so that the next trial starts afresh."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)


def _reason_not_possible(trainer: Trainer, pl_module: LockstepModule) -> str:
    """Return why no micro-batch can be tried, or an empty string."""
    if not isinstance(trainer.strategy, (SingleDeviceStrategy, DDPStrategy)):
        return (
            f"{type(trainer.strategy).__name__} shards the weights, so the memory use is known in training only; "
            "set data.init_args.micro_batch_size"
        )
    if not pl_module.supports_grad_accumulation:
        options = " or ".join(option for option, _ in pl_module.memory_saving_options())
        return (
            f"{type(pl_module).__name__} computes the loss of a rank's share of the global batch at once, so the share "
            f"cannot be split{'; try ' if options else ''}{options}"
        )
    if not reports_oom(trainer.strategy.root_device):
        return (
            "on a CPU the kernel kills a process that runs out of memory, so no micro-batch can be tried; "
            "set data.init_args.micro_batch_size"
        )
    return ""


def _two_passes(trainer: Trainer, pl_module: LockstepModule, batch: object) -> None:
    """Run two passes beside the memory that the optimizer and DDP will take.

    The second pass runs with the gradients of the first pass allocated, as in accumulation.
    """
    with trial_pass(trainer, pl_module, batch) as run_pass:
        trained = [parameter for parameter in pl_module.parameters() if parameter.requires_grad]
        reserved = _optimizer_state(pl_module, trained)
        if isinstance(trainer.strategy, DDPStrategy):  # its buckets are one more copy of the gradients
            reserved += [torch.empty_like(parameter) for parameter in trained]
        for table in pl_module.row_tables:
            reserved += [table.weight.new_empty(shape) for shape in state_shapes(table.update, table.weight).values()]
        run_pass()
        run_pass()
        del reserved


def _optimizer_state(pl_module: LockstepModule, trained: Sequence[nn.Parameter]) -> list[Tensor]:
    """Return tensors of the size that the optimizer's state of the parameters will have on their device."""
    if pl_module.optimizer_settings.offload:
        return []
    spec = OPTIMIZERS[pl_module.optimizer_name]
    embeddings = embedding_weights(pl_module)
    # An optimizer keeps its state in the type of the weight, unless it quantizes the state.
    sizes = (
        state_size(weight.numel(), spec.state_bytes, spec.in_blocks, weight in embeddings)
        * (1 if spec.in_blocks else weight.itemsize / 4)
        for weight in trained
    )
    return [weight.new_empty(int(size), dtype=torch.uint8) for weight, size in zip(trained, sizes, strict=True)]

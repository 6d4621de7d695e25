"""`trainer.auto_micro_batch`: the largest micro-batch that fits, found before training."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from types import MethodType
from typing import Any

import numpy as np
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.plugins.precision import DoublePrecision, HalfPrecision
from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy
from lightning.pytorch.trainer.call import _call_configure_model
from lightning.pytorch.utilities.seed import isolate_rng
from numpy.typing import NDArray
from torch import Tensor, nn
from torchmetrics import Metric

from callbacks.memory_advice import FORWARD, advice, peak
from callbacks.memory_room import give_back, memory_room
from callbacks.watchdog import longer_than_a_step
from engine.batch_plan import BatchPlan
from engine.datamodule import LockstepDataModule
from engine.faults import AgreedFailure
from engine.gather import gathered
from engine.out_of_memory import is_out_of_memory
from engine.randomness import global_seed
from engine.sampling import Draw, global_batches
from engine.streaming import Stream

log = logging.getLogger("lockstep")

_TRIED = 4
"""Micro-batches of which the one with most numbers is computed, where the data do not tell which samples are large."""

_STATES = 2
"""Numbers that an optimizer keeps of each weight: AdamW's; the others have fewer."""


class AutoMicroBatch(Callback):
    """Sets `data.micro_batch_size` before anything depends on it.

    Tried are the process's share of the global batch (`data.micro_batch_size`, if it is given), half of it, and so on,
    until two forward and backward passes in a row fit beside gradients, optimizer state and what DDP sends. The samples
    are the largest of the training set where it knows them (`work`), else those of the first steps with most numbers.

    Every process computes by itself, so one that runs out of memory keeps none waiting; after each attempt all agree on
    whether it fitted everywhere. On a CPU a limit of the allocator stands for the kernel's, which would kill.

    What is trained afterwards is, to the bit, what the same `data.micro_batch_size` trains.

    Args:
        if_possible: where an attempt would say nothing (shards, a loss of the whole batch) train without one.
    """

    def __init__(self, if_possible: bool = False) -> None:
        self.if_possible = if_possible

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if stage != "fit":
            return
        reason = _nothing_to_find(trainer, pl_module)
        if reason and not self.if_possible:
            raise ValueError(f"trainer.auto_micro_batch {reason}")
        if reason:
            if trainer.is_global_zero:
                log.warning("WARNING: no micro-batch is looked for: trainer.auto_micro_batch %s", reason)
            return
        data: LockstepDataModule = trainer.datamodule  # type: ignore[attr-defined]
        _call_configure_model(trainer)  # Lightning calls it later, when there is nothing left to do
        plan: BatchPlan | None = data.plan
        while plan is not None:
            data.micro_batch_size = plan.micro_batch_size
            with longer_than_a_step(trainer, f"trying micro-batches of {plan.micro_batch_size}"):
                fits, found = self._attempt(trainer, pl_module, data)
            if fits:
                log.info("auto_micro_batch: %d samples fit (peak %s)", plan.micro_batch_size, found)
                return
            log.info("auto_micro_batch: %d samples do not fit", plan.micro_batch_size)
            plan = plan.halved()
        raise AgreedFailure(f"auto_micro_batch: not even one sample fits\n{found}")

    @staticmethod
    def _attempt(trainer: Trainer, pl_module: LightningModule, data: LockstepDataModule) -> tuple[bool, str]:
        """Whether the plan's micro-batch fits on all processes, and the peak, or what would help."""
        device, size = trainer.strategy.root_device, data.plan.micro_batch_size
        batch, fits = None, True
        try:
            with memory_room(device, _processes_of_machine(trainer)):
                batch = _largest(data, size)
                _passes(trainer, pl_module, batch)
            found = peak(device)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            fits, found = False, advice(trainer, pl_module, FORWARD, batch)
        del batch
        give_back(device)
        return bool(gathered(torch.tensor(int(fits), device=device)).min()), found


def _nothing_to_find(trainer: Trainer, pl_module: Any) -> str:
    """Why an attempt would say nothing: weights lie in shards, or the loss needs a whole batch; else nothing."""
    if not isinstance(trainer.strategy, (SingleDeviceStrategy, DDPStrategy)):
        return (
            f"with trainer.strategy {type(trainer.strategy).__name__}: how much its shards leave free shows in "
            "training alone; give data.init_args.micro_batch_size"
        )
    if not pl_module.splits_batches:
        others = " or ".join(option for option, _ in pl_module.memory_savers())
        return (
            f"with {type(pl_module).__name__}: it computes a process's share of the global batch at once, so there is "
            f"nothing to divide{'; try ' if others else ''}{others}"
        )
    return ""


def _processes_of_machine(trainer: Trainer) -> int:
    return trainer.num_devices if isinstance(trainer.strategy, DDPStrategy) else 1


# -- which samples ---------------------------------------------------------------------------------------------------


def _largest(data: LockstepDataModule, size: int) -> Any:
    """A micro-batch of so many samples that is as large as they come."""
    source = data.train_set
    if isinstance(source, Stream):
        records = list(islice(source.records(0), size))
        return source.batch(0, np.arange(len(records)), records)
    work = getattr(source, "work", None)
    if work is not None:
        return source[Draw(0, _filled(np.argsort(-work, kind="stable"), size))]
    order = np.concatenate(list(islice(iter(_epoch(source, data)), _TRIED)))
    tried = [source[Draw(0, _filled(order[size * turn :], size))] for turn in range(_TRIED) if size * turn < len(order)]
    return max(tried, key=_numbers)


def _epoch(source: Any, data: LockstepDataModule) -> list[NDArray[np.int64]]:
    blocks = getattr(source, "blocks", lambda epoch: None)(0)
    return global_batches(len(source), data.plan.batch_size, global_seed(), 0, blocks)


def _filled(indices: NDArray[np.integer], size: int) -> NDArray[np.int64]:
    """[size]: from the beginning again where there are fewer."""
    return np.resize(indices[:size], size).astype(np.int64)


def _numbers(content: Any) -> int:
    if isinstance(content, (Tensor, np.ndarray)):
        return int(np.prod(content.shape))
    if isinstance(content, dict):
        content = content.values()
    if hasattr(content, "__dataclass_fields__"):
        content = vars(content).values()
    return sum(map(_numbers, content)) if isinstance(content, (tuple, list, type({}.values()))) else 0


# -- forward and backward --------------------------------------------------------------------------------------------


def _passes(trainer: Trainer, pl_module: Any, batch: Any) -> None:
    """Two passes, the second with the gradients of the first, beside as much as the optimizer and DDP will take."""
    device, precision = trainer.strategy.root_device, trainer.precision_plugin
    if isinstance(precision, (HalfPrecision, DoublePrecision)):
        precision.convert_module(pl_module)
    pl_module.to(device)
    with isolate_rng(), _untouched(pl_module), torch.enable_grad():
        batch = precision.convert_input(trainer.strategy.batch_to_device(batch, device))
        trained = [parameter for parameter in pl_module.parameters() if parameter.requires_grad]
        copies = _STATES + isinstance(trainer.strategy, DDPStrategy)
        beside = [torch.empty_like(parameter) for parameter in trained for _ in range(copies)]
        for _ in range(2):
            with precision.forward_context():
                total = pl_module.training_loss(batch).total
            (total / max(total.detach().abs().item(), 1.0)).backward()
        del beside


@contextmanager
def _untouched(pl_module: LightningModule) -> Iterator[None]:
    """Nothing that a pass writes is left: gradients, statistics, metrics; logs go nowhere, no process is waited for."""
    kept = {name: buffer.clone() for name, buffer in pl_module.named_buffers()}
    norms = [part for part in pl_module.modules() if isinstance(part, nn.SyncBatchNorm)]
    for norm in norms:  # of its own process's samples
        norm.forward = MethodType(nn.modules.batchnorm._BatchNorm.forward, norm)  # type: ignore[method-assign]
    pl_module.log = pl_module.log_dict = lambda *_, **__: None  # type: ignore[method-assign]
    try:
        yield
    finally:
        del pl_module.log, pl_module.log_dict
        for norm in norms:
            del norm.forward
        pl_module.zero_grad(set_to_none=True)
        with torch.no_grad():
            for name, buffer in pl_module.named_buffers():
                if name in kept:
                    buffer.copy_(kept[name])
        for part in pl_module.modules():
            if isinstance(part, Metric):
                part.reset()

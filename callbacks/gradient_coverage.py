"""Names parameters that are to be trained and get no gradient, at the first step."""

import logging
from typing import Any, Literal

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.strategies import FSDPStrategy
from torch.nn.parallel import DistributedDataParallel

from engine.faults import AgreedFailure
from engine.gather import gathered
from engine.gradient_mean import mean_in, sent_format

log = logging.getLogger("lockstep")


class GradientCoverage(Callback):
    """Looks after the first optimizer step of every start which trainable parameters have got a gradient, and where.

    Under DDP such a parameter is worse than useless. Its bucket is never reduced: PyTorch fails one step later, with
    numbers for names, and when only one process leaves the parameter out, its collectives pair with the wrong ones of
    the others and the run hangs. So DDP's reducer has no part in the first step: gradients stay local, the processes
    compare what they have, and only then they are averaged, here. That is the same mean (to the bit on two
    processes; on more, rings may add in another order, as DDP's own first step does before it rebuilds its buckets)
    and takes no rehearsal and no second forward pass, but a message for each parameter, once in a start.

    A parameter that only some steps use is not found. Parameters that do not require a gradient are left alone. With
    `find_unused_parameters` or `static_graph` DDP copes, and it is only told. Off under FSDP.

    Args:
        policy: `stop` ends the run before anything is changed, `warn` goes on.
    """

    def __init__(self, policy: Literal["stop", "warn"] = "stop") -> None:
        self.policy = policy

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        model = trainer.strategy.model
        self._ddp = model if isinstance(model, DistributedDataParallel) else None
        self._tolerant = self._ddp is not None and (self._ddp.find_unused_parameters or self._ddp.static_graph)
        self._trained = {name: part for name, part in pl_module.named_parameters() if part.requires_grad}
        self._reached: set[str] = set()
        self._pending = bool(self._trained) and not isinstance(trainer.strategy, FSDPStrategy)
        self._hooks = [
            part.register_post_accumulate_grad_hook(lambda _, name=name: self._reached.add(name))
            for name, part in self._trained.items()
            if self._pending
        ]

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        if self._pending and self._ddp is not None and not self._tolerant:
            self._ddp.require_backward_grad_sync = False
            self._reached.clear()  # of an accumulated step the last micro-batch counts: it is the one that DDP reduces

    def on_after_backward(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not self._pending or trainer.fit_loop.epoch_loop._should_accumulate():
            return
        self._pending = False
        for hook in self._hooks:
            hook.remove()
        lacking = self._lacking(pl_module)
        if lacking:
            self._tell(lacking, trainer.world_size)
        if self._ddp is not None and not self._tolerant:
            _average(self._ddp)
            self._ddp.require_backward_grad_sync = self._ddp.require_forward_param_sync = True

    def _lacking(self, pl_module: LightningModule) -> dict[str, list[int]]:
        """{parameter: processes on which it got no gradient}; the same on every process."""
        own = torch.tensor([name not in self._reached for name in self._trained], dtype=torch.int32)
        everywhere = gathered(own.to(pl_module.device)).T.tolist()
        return {
            name: [process for process, lacks in enumerate(row) if lacks]
            for name, row in zip(self._trained, everywhere, strict=True)
            if any(row)
        }

    def _tell(self, lacking: dict[str, list[int]], processes: int) -> None:
        lines = ["trainable parameters without a gradient in the first step:"]
        for name, where in lacking.items():
            on = "" if len(where) == processes else f" on process{'es' * (len(where) > 1)} {', '.join(map(str, where))}"
            lines.append(f"  {name} {tuple(self._trained[name].shape)}{on}")
        if self._tolerant:
            log.info("\n".join(lines))
            return
        lines.append(
            "Remove them, freeze them (requires_grad False), or let them take part in the loss on every process. If "
            "they are to be used now and then: --gradient_coverage.policy warn"
            + (" and --trainer.strategy ddp_find_unused_parameters_true" if self._ddp is not None else "")
        )
        if self.policy == "stop":
            raise AgreedFailure("\n".join(lines))
        log.warning("\n".join(lines))


def _average(ddp: DistributedDataParallel) -> None:
    """What DDP's reducer does with the gradients: their mean over the processes, missing ones as zeros."""
    sent_as = sent_format(ddp)
    for name, parameter in ddp.module.named_parameters():
        if parameter.requires_grad and name not in ddp.parameters_to_ignore:
            gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            if sent_as is not None:
                parameter.grad = mean_in(sent_as, gradient, ddp.process_group).wait()
                continue
            parameter.grad = gradient / ddp.process_group.size()
            torch.distributed.all_reduce(parameter.grad, group=ddp.process_group)

"""Finds trainable parameters that receive no gradient in the first step."""

import logging
from typing import Any, Literal

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch.nn.parallel import DistributedDataParallel
from typing_extensions import override

from engine.distributed.collectives import all_gather_tensor
from engine.distributed.ddp_reducer import reduce_local_gradients
from engine.distributed.errors import CollectiveError
from engine.module import as_lockstep_module
from engine.strategies.fsdp import has_sharded_weights

log = logging.getLogger("lockstep")


class UnusedParameterCheck(Callback):
    """Checks in the first optimizer step of every start which trainable parameters receive a gradient, on which rank.

    Under DDP the bucket of a parameter without a gradient is never reduced. PyTorch fails one step later and names
    parameters by index. If only one rank omits the parameter, its collectives pair with others of the other
    ranks, and the run hangs. So this callback disables DDP's reducer in the first step: gradients stay local, the ranks
    compare which they have, and only then the reducer gets them. The check needs no second forward pass, but the
    gradients are sent twice, once in a start.

    A parameter that is used in some steps only is not found. Parameters that do not require a gradient are ignored.
    With `find_unused_parameters` or `static_graph` DDP handles unused parameters, and they are only logged. Off under
    FSDP.

    Args:
        policy: `stop` ends the run before anything is changed, `warn` logs a warning.
    """

    def __init__(self, policy: Literal["stop", "warn"] = "stop") -> None:
        self.policy = policy

    @override
    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        model = trainer.strategy.model
        self._ddp = model if isinstance(model, DistributedDataParallel) else None
        self._ddp_tolerates = self._ddp is not None and (self._ddp.find_unused_parameters or self._ddp.static_graph)
        self._trained = {name: part for name, part in pl_module.named_parameters() if part.requires_grad}
        self._has_gradient: set[str] = set()
        self._pending = bool(self._trained) and not has_sharded_weights(trainer.strategy)
        # The hooks run when a gradient is accumulated, so they see it although the reducer is off.
        self._hooks = [
            part.register_post_accumulate_grad_hook(lambda _, name=name: self._has_gradient.add(name))
            for name, part in self._trained.items()
            if self._pending
        ]
        if self._pending:
            as_lockstep_module(pl_module).call_before_normalization(lambda: self._check(trainer, pl_module))

    @override
    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        if self._pending and self._ddp is not None and not self._ddp_tolerates:
            # Gradients stay on this rank, as with DDP's no_sync.
            self._ddp.require_backward_grad_sync = False
            self._has_gradient.clear()  # DDP reduces after the last micro-batch, which counts

    def _check(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._pending = False
        for hook in self._hooks:
            # Only the first step is checked; hooks would slow down all others.
            hook.remove()
        unused = self._find_unused(pl_module)
        if unused:
            self._report(unused, trainer.world_size)
        # The gradients are still local: send them through DDP's reducer now.
        if self._ddp is not None and not self._ddp_tolerates:
            reduce_local_gradients(self._ddp)

    def _find_unused(self, pl_module: LightningModule) -> dict[str, list[int]]:
        """Return {parameter: ranks on which it has no gradient}, equal on all ranks. A collective."""
        has_no_gradient = torch.tensor([name not in self._has_gradient for name in self._trained], dtype=torch.int32)
        # [world size, parameters], transposed: for each parameter the ranks without a gradient
        unused_by_parameter = all_gather_tensor(has_no_gradient.to(pl_module.device)).T.tolist()
        return {
            name: [rank for rank, is_unused in enumerate(unused_by_rank) if is_unused]
            for name, unused_by_rank in zip(self._trained, unused_by_parameter, strict=True)
            if any(unused_by_rank)
        }

    def _report(self, unused: dict[str, list[int]], world_size: int) -> None:
        lines = ["trainable parameters without a gradient in the first step:"]
        for name, ranks in unused.items():
            on = "" if len(ranks) == world_size else f" on rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"
            lines.append(f"  {name} {tuple(self._trained[name].shape)}{on}")
        if self._ddp_tolerates:
            log.info("\n".join(lines))
            return
        lines.append(
            "Remove them, freeze them (requires_grad False), or use them in the loss on every rank. If only some steps "
            "use them: --unused_parameters.policy warn"
            + (" and --trainer.strategy ddp_find_unused_parameters_true" if self._ddp is not None else "")
        )
        if self.policy == "stop":
            raise CollectiveError("\n".join(lines))
        log.warning("\n".join(lines))

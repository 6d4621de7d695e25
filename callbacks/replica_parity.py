"""Notices when the processes of a run no longer train the same model."""

from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from engine.faults import AgreedFailure
from engine.fingerprint import fingerprint
from engine.gather import gathered


class ReplicaParity(Callback):
    """Compares the trained parameters of all processes, to the bit, every so many steps; a difference ends the run.

    DDP makes replicas equal at the start and keeps them so by equal updates. A flipped bit, a faulty device, a
    parameter that was changed on one process, or a gradient that the all-reduce passed over break this without a
    word: each process then averages gradients of another model. Costs a pass over the parameters and one all-gather of
    8 bytes for each. Not needed, and off, on one process and where processes hold shards.

    Args:
        every_n_steps: optimizer steps between comparisons; 0 is never.
    """

    def __init__(self, every_n_steps: int = 1000) -> None:
        if every_n_steps < 0:
            raise ValueError(f"replica_parity.every_n_steps must be 0 (never) or more, got {every_n_steps}")
        self.every_n_steps = every_n_steps

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._compared = trainer.global_step
        self._on = self.every_n_steps > 0 and isinstance(trainer.strategy.model, DistributedDataParallel)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        step = trainer.global_step
        if self._on and step != self._compared and step % self.every_n_steps == 0:
            self._compared = step
            compare(trainer, pl_module)


def compare(trainer: Trainer, pl_module: LightningModule) -> None:
    """Called by every process.

    Raises:
        AgreedFailure: names the first parameter that is not the same everywhere, and who has what.
    """
    trained = [(name, parameter) for name, parameter in pl_module.named_parameters() if parameter.requires_grad]
    own = torch.stack([fingerprint(parameter) for _, parameter in trained])
    everywhere = gathered(own).cpu()
    unequal = (everywhere != everywhere[0]).any(dim=0).nonzero().flatten().tolist()
    if unequal:
        more = f", and so do {len(unequal) - 1} more of {len(trained)} parameters" if len(unequal) > 1 else ""
        raise AgreedFailure(
            f"the replicas are no longer equal after step {trainer.global_step}: {trained[unequal[0]][0]} differs "
            f"({_holders(everywhere[:, unequal[0]])}){more}. Go on from a checkpoint that was saved before the "
            "difference arose, and check the device of the process that stands alone"
        )


def _holders(values: Tensor) -> str:
    """`one value on processes 0, 2; another on process 1`."""
    holders: dict[int, list[str]] = {}
    for process, value in enumerate(values.tolist()):
        holders.setdefault(value, []).append(str(process))
    groups = [f"process{'es' * (len(group) > 1)} {', '.join(group)}" for group in holders.values()]
    return "one value on " + "; another on ".join(groups)

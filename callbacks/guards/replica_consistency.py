"""Detects replicas that differ: ranks that no longer train the same model."""

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel
from typing_extensions import override

from engine.determinism.tensor_hash import hash_tensor
from engine.distributed.collectives import all_gather_tensor
from engine.distributed.errors import CollectiveError
from engine.number_check import check_number
from engine.optim.row_table import is_trained
from engine.run_trainer import leave_training


class ReplicaConsistencyCheck(Callback):
    """Compares the trained parameters of all ranks bit by bit every `every_n_steps`; a difference ends the run.

    DDP makes replicas equal at the start, and equal updates keep them so. A flipped bit, a faulty device, a parameter
    changed on one rank, or a gradient that misses the all-reduce breaks this silently: gradients of unequal models are
    averaged. A comparison costs a pass over the parameters and an all-gather of 8 bytes per parameter. It is
    disabled with a world size of 1 and with sharded parameters, where it is not needed.

    Args:
        every_n_steps: optimizer steps between comparisons; 0 is never.
    """

    def __init__(self, every_n_steps: int = 1000) -> None:
        check_number("replica_consistency.every_n_steps", every_n_steps, at_least=0)
        self.every_n_steps = every_n_steps

    @override
    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._last_compared = trainer.global_step
        if self.every_n_steps == 0 or not isinstance(trainer.strategy.model, DistributedDataParallel):
            leave_training(self, trainer)

    @override
    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: object, batch: object, batch_idx: int
    ) -> None:
        # The hook runs after each micro-batch, and the comparison once a step.
        step = trainer.global_step
        if step != self._last_compared and step % self.every_n_steps == 0:
            self._last_compared = step
            compare_replicas(trainer, pl_module)


def compare_replicas(trainer: Trainer, pl_module: LightningModule) -> None:
    """Compare the trained parameters of all ranks. A collective.

    Raises:
        CollectiveError: replicas differ; names the first parameter that differs, and groups the ranks by its value.
    """
    trained = [(name, parameter) for name, parameter in pl_module.named_parameters() if is_trained(parameter)]
    # Hashes and not weights: an all-gather of all weights would send every weight over the network.
    rank_hashes = torch.stack([hash_tensor(parameter) for _, parameter in trained])
    # [world size, parameters]; one transfer to the host for all hashes
    hashes_by_rank = all_gather_tensor(rank_hashes).cpu()
    unequal = (hashes_by_rank != hashes_by_rank[0]).any(dim=0).nonzero().flatten().tolist()
    if unequal:
        more = f", as do {len(unequal) - 1} more of {len(trained)} parameters" if len(unequal) > 1 else ""
        raise CollectiveError(
            f"the replicas are no longer equal after step {trainer.global_step}: {trained[unequal[0]][0]} differs "
            f"({_holders(hashes_by_rank[:, unequal[0]])}){more}. Resume from a checkpoint saved before "
            "they differed, and check the device of the rank whose value differs"
        )


def _holders(values: Tensor) -> str:
    """Describe which ranks share a value: `one value on ranks 0, 2; another on rank 1`."""
    holders: dict[int, list[str]] = {}
    for rank, value in enumerate(values.tolist()):
        holders.setdefault(value, []).append(str(rank))
    groups = [f"rank{'s' * (len(group) > 1)} {', '.join(group)}" for group in holders.values()]
    return "one value on " + "; another on ".join(groups)

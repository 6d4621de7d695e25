"""Maps a global rank to its data-parallel rank: under tensor parallelism the ranks of a group read the same samples."""

from typing import NamedTuple

from lightning.pytorch import Trainer
from lightning.pytorch.strategies import Strategy


class DataParallelRank(NamedTuple):
    """Data-parallel rank of a process, among the ranks that read different samples."""

    rank: int
    size: int
    is_group_leader: bool
    """Whether this rank counts and writes the results of its samples. One rank of each tensor-parallel group does."""

    @classmethod
    def from_global_rank(cls, rank: int, world_size: int, tensor_parallel: int) -> "DataParallelRank":
        """Return the data-parallel rank of a global rank. Neighbors form groups: 0 and 1, 2 and 3, ... for size 2."""
        return cls(rank // tensor_parallel, world_size // tensor_parallel, rank % tensor_parallel == 0)


def data_parallel_rank(trainer: Trainer | None) -> DataParallelRank:
    """Return the data-parallel rank of this process. Without tensor parallelism it is the global rank."""
    if trainer is None:
        return DataParallelRank(0, 1, True)
    return DataParallelRank.from_global_rank(trainer.global_rank, trainer.world_size, tensor_parallel_size(trainer))


def tensor_parallel_size(trainer: Trainer | None) -> int:
    """Return the number of ranks that read the same samples."""
    return 1 if trainer is None else strategy_tensor_parallel_size(trainer.strategy)


def strategy_tensor_parallel_size(strategy: Strategy) -> int:
    """Return the number of ranks that read the same samples under a strategy."""
    # An attribute of TensorParallelStrategy. Each step asks several times, and an isinstance of a Protocol is slow.
    size: int = getattr(strategy, "tensor_parallel", 1)
    return size

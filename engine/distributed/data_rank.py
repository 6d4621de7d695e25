"""Which samples a rank reads: under tensor parallelism the ranks of a group read the same."""

from typing import NamedTuple

from lightning.pytorch import Trainer


class DataRank(NamedTuple):
    """Place of a rank among the ranks that read different samples: its data-parallel rank."""

    rank: int
    size: int
    counts: bool
    """Whether this rank counts and writes what its samples give; a single rank of each tensor-parallel group does."""

    @classmethod
    def of(cls, rank: int, world_size: int, tensor_parallel: int) -> "DataRank":
        """Return the place of a global rank, if neighbours form groups: 0 and 1, 2 and 3, ... for groups of two."""
        return cls(rank // tensor_parallel, world_size // tensor_parallel, rank % tensor_parallel == 0)


def data_rank(trainer: Trainer | None) -> DataRank:
    """Return the data-parallel rank of this process. Without tensor parallelism it is the global rank."""
    if trainer is None:
        return DataRank(0, 1, True)
    return DataRank.of(trainer.global_rank, trainer.world_size, tensor_parallel_size(trainer))


def tensor_parallel_size(trainer: Trainer | None) -> int:
    """Return the number of ranks that read the same samples."""
    return 1 if trainer is None else getattr(trainer.strategy, "tensor_parallel", 1)

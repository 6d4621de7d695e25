"""Parses the environment variables in which torchrun, srun and other launchers state their numbers.

`process_checks` refuses malformed variables before a training; the doctor, which reports them, reads past them.
"""

from collections.abc import Mapping
from typing import NamedTuple


class LauncherVariables(NamedTuple):
    """Numbers in a launcher's variables; None for a variable that is absent or not a number."""

    rank: int | None
    local_rank: int | None
    world_size: int | None
    local_world_size: int | None
    slurm_rank: int | None
    slurm_tasks: int | None
    slurm_nodes: int | None
    slurm_tasks_per_node: int | None

    @classmethod
    def read(cls, environ: Mapping[str, str]) -> "LauncherVariables":
        """Return the numbers of an environment."""
        return cls(
            rank=_parse_count(environ.get("RANK")),
            local_rank=_parse_count(environ.get("LOCAL_RANK")),
            world_size=_parse_count(environ.get("WORLD_SIZE")),
            local_world_size=_parse_count(environ.get("LOCAL_WORLD_SIZE")),
            slurm_rank=_parse_count(environ.get("SLURM_PROCID")),
            slurm_tasks=_parse_count(environ.get("SLURM_NTASKS")),
            slurm_nodes=_parse_count(environ.get("SLURM_NNODES")),
            slurm_tasks_per_node=_parse_count(environ.get("SLURM_NTASKS_PER_NODE")),
        )

    def ranks_per_node(self) -> int | None:
        """Return the ranks on a node, by whichever launcher states it; None if the nodes have different numbers."""
        return self.local_world_size or self._tasks_per_node() or self.ranks_per_node_by_rank()

    def ranks_per_node_by_rank(self) -> int | None:
        """Return the ranks on a node of a launcher that sets RANK.

        Kubernetes' PyTorchJob starts one rank in a pod, without LOCAL_RANK.
        """
        if self.local_world_size or self.rank is None:
            return self.local_world_size
        return 1 if self.local_rank is None else self.world_size

    def nodes(self) -> int | None:
        """Return the number of nodes."""
        if self.local_world_size and self.world_size is not None:
            return max(1, self.world_size // self.local_world_size)
        return self.slurm_nodes

    def _tasks_per_node(self) -> int | None:
        nodes = self.slurm_nodes or 1
        if self.slurm_tasks_per_node or self.slurm_tasks is None:
            return self.slurm_tasks_per_node
        return None if self.slurm_tasks % nodes else self.slurm_tasks // nodes

    def is_rank_zero(self) -> bool:
        """Return whether this is rank 0 of a launcher, or a process without a launcher."""
        return (self.slurm_rank if self.rank is None else self.rank) in (0, None)


def require_number(name: str, number: int | None) -> int:
    """Return the number of a variable.

    Raises:
        ValueError: the variable is absent or not a number.
    """
    if number is None:
        raise ValueError(f"the environment variable {name}: found no number, expected that of the launcher")
    return number


def _parse_count(text: str | None) -> int | None:
    # isdigit would accept superscripts, for which `int` raises an error.
    return int(text) if text is not None and text.strip().isdecimal() else None

"""Processes that somebody else has started and described by RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT."""

import os

from lightning.fabric.plugins.environments import KubeflowEnvironment


class VariablesEnvironment(KubeflowEnvironment):
    """Kubernetes' PyTorchJob, mpirun with its variables renamed, or a shell script with one line a process.

    Lightning finds none of these by itself: without LOCAL_RANK every pod of a PyTorchJob would train alone.
    """

    def local_rank(self) -> int:
        return int(os.environ.get("LOCAL_RANK", "0"))

    def node_rank(self) -> int:
        processes = int(os.environ["WORLD_SIZE"]) if "LOCAL_RANK" in os.environ else 1
        return self.global_rank() // int(os.environ.get("LOCAL_WORLD_SIZE", processes))

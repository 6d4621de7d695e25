"""Describes to Lightning the ranks of RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT as a cluster environment."""

import os

from lightning.fabric.plugins.environments import KubeflowEnvironment
from typing_extensions import override

from commands.launch.launcher_variables import LauncherVariables


class EnvVariablesEnvironment(KubeflowEnvironment):
    """Environment of Kubernetes' PyTorchJob, of mpirun with renamed variables, or of a shell script.

    Lightning detects none of these: without LOCAL_RANK each pod of a PyTorchJob would train alone.
    """

    @override
    def local_rank(self) -> int:
        return int(os.environ.get("LOCAL_RANK", "0"))

    @override
    def node_rank(self) -> int:
        return self.global_rank() // (LauncherVariables.read(os.environ).ranks_per_node_by_rank() or 1)

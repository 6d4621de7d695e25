"""Reads from the environment how many ranks a launcher started and where they connect.

`torchrun --nproc_per_node 2 train.py fit ...` with one device in the config would otherwise train two independent
copies, each on all data, without a warning from Lightning.
"""

from collections.abc import Mapping, MutableMapping
from typing import Literal, NamedTuple

from lightning.fabric.plugins.environments import SLURMEnvironment

from commands.launch.accelerate import require_multi_gpu_flag
from commands.launch.launcher_variables import LauncherVariables, require_number


class LaunchedProcesses(NamedTuple):
    """Number of ranks that a launcher started: `per_node` ranks on each of `nodes` nodes."""

    kind: Literal["torchrun", "srun", "environment"]
    """What started the ranks; `environment`: another launcher, which sets RANK."""

    per_node: int
    nodes: int

    @property
    def launcher(self) -> str:
        """Name of the launcher, for messages."""
        return "the launcher" if self.kind == "environment" else self.kind


class Rendezvous(NamedTuple):
    """Address of the store at which separately started ranks connect.

    `store_outlives_ranks`: the launcher serves the store, so it remains when the ranks end.
    """

    rank: int
    processes: int
    address: str
    port: int
    store_outlives_ranks: bool


def launched_processes(environ: Mapping[str, str]) -> LaunchedProcesses | None:
    """Return what torchrun, srun or a launcher that sets RANK started; None for a process that was started alone.

    Kubernetes' PyTorchJob sets RANK and WORLD_SIZE with one process a pod and no LOCAL_RANK. Its PET_ variables are
    torchrun's.

    Raises:
        ValueError: srun has no number of tasks per node, or was not used in a job of several tasks; variables are
            missing; accelerate launch started one process of several.
    """
    variables = LauncherVariables.read(environ)
    # torchrun comes first: inside a SLURM job it starts the ranks itself, and srun's counts are of its agents.
    if "TORCHELASTIC_RUN_ID" in environ:
        per_node = require_number("LOCAL_WORLD_SIZE", variables.local_world_size)
        return LaunchedProcesses("torchrun", per_node, require_number("WORLD_SIZE", variables.world_size) // per_node)
    if SLURMEnvironment.detect():
        return _started_by_srun(environ, variables)
    if "RANK" in environ:
        return _started_by_rank(environ, variables)
    require_multi_gpu_flag(environ)
    return None


def _started_by_srun(environ: Mapping[str, str], variables: LauncherVariables) -> LaunchedProcesses:
    tasks, nodes = require_number("SLURM_NTASKS", variables.slurm_tasks), variables.slurm_nodes or 1
    # srun sets the step; a batch script or a shell of salloc has only the variables of the job.
    if tasks > 1 and "SLURM_STEP_ID" not in environ:
        raise ValueError(
            f"this SLURM job has {tasks} tasks, but this process was started without srun and would wait "
            "indefinitely: put srun before python, or submit deploy/slurm/train.sbatch"
        )
    if tasks % nodes:
        raise ValueError(f"srun started {tasks} tasks on {nodes} nodes: use --ntasks-per-node, not --ntasks")
    return LaunchedProcesses("srun", tasks // nodes, nodes)


def _started_by_rank(environ: Mapping[str, str], variables: LauncherVariables) -> LaunchedProcesses:
    """Return what a launcher started that sets RANK and is neither torchrun nor srun."""
    missing = [name for name in ("WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT") if name not in environ]
    if missing:
        raise ValueError(
            f"RANK is {environ['RANK']}, but {' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not "
            "set: every process of a run needs RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT (and LOCAL_RANK and "
            "LOCAL_WORLD_SIZE with several on a machine); a run of one process needs none of them"
        )
    rank, processes = require_number("RANK", variables.rank), require_number("WORLD_SIZE", variables.world_size)
    per_node = variables.ranks_per_node_by_rank() or 1
    if processes % per_node or rank >= processes:
        raise ValueError(
            f"RANK {environ['RANK']}, WORLD_SIZE {processes} and LOCAL_WORLD_SIZE {per_node} do not fit together: "
            "RANK counts from 0 to WORLD_SIZE - 1, and every machine has LOCAL_WORLD_SIZE processes"
        )
    return LaunchedProcesses("environment", per_node, processes // per_node)


def rendezvous_from_env(environ: MutableMapping[str, str]) -> Rendezvous | None:
    """Return where the ranks connect; None for a process that was started alone.

    Under SLURM, sets MASTER_ADDR and MASTER_PORT if they are missing: to the first node, and to a port derived from the
    numbers of job and step. It lies below the ephemeral ports of the system, so no other program has it by chance.
    """
    launched = launched_processes(environ)
    if launched is None:
        return None
    if launched.kind == "srun":
        slurm = SLURMEnvironment()
        job, step_id = int(environ.get("SLURM_JOB_ID", "0")), environ.get("SLURM_STEP_ID", "0")
        step = int(step_id) if step_id.isdecimal() else 0  # a name, such as `interactive`, in some versions
        # Every rank computes the same port without asking another; steps of one job get different ports.
        environ.setdefault("MASTER_PORT", str(15000 + (job + 101 * step) % 17000))
        environ.setdefault("MASTER_ADDR", slurm.resolve_root_node_address(environ.get("SLURM_NODELIST", "127.0.0.1")))
        rank = require_number("SLURM_PROCID", LauncherVariables.read(environ).slurm_rank)
    else:
        rank = require_number("RANK", LauncherVariables.read(environ).rank)
    outlives = environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    processes = launched.per_node * launched.nodes
    return Rendezvous(rank, processes, environ["MASTER_ADDR"], int(environ["MASTER_PORT"]), outlives)


def device_count(devices: str | int | list[int]) -> int | None:
    """Return the number of devices that `trainer.devices` states; None for `auto` and for all, -1."""
    if devices in ("auto", -1, "-1"):
        return None
    if isinstance(devices, str):
        return int(devices) if devices.isdigit() else len(devices.strip(",").split(","))
    return devices if isinstance(devices, int) else len(devices)


def match_launched(
    devices: str | int | list[int], num_nodes: int, launched: LaunchedProcesses | None
) -> tuple[str | int | list[int], int]:
    """Return `trainer.devices` and `trainer.num_nodes`, with defaults from the launcher.

    Raises:
        ValueError: the config has another number of processes than the launcher started.
    """
    if launched is None:
        return devices, num_nodes
    if devices == "auto":
        devices = launched.per_node
    if num_nodes == 1:  # the default, which cannot be distinguished from a 1 that the user wrote
        num_nodes = launched.nodes
    requested = device_count(devices)
    if (requested not in (None, launched.per_node)) or num_nodes != launched.nodes:
        raise ValueError(
            f"{launched.launcher} started {launched.per_node} process(es) on each of {launched.nodes} node(s), but the "
            f"config has trainer.devices {devices} and trainer.num_nodes {num_nodes}: make them equal, or leave "
            "devices on auto"
        )
    return devices, num_nodes

"""What a launcher has started: how many processes, and where they meet, so that nobody has to say it twice.

`torchrun --nproc_per_node 2 train.py fit ...` with one device in the config would otherwise train two copies that know
nothing of each other, each on all of the data, without a word from Lightning.
"""

import os
from collections.abc import Mapping, MutableMapping
from typing import NamedTuple

from lightning.fabric.plugins.environments import SLURMEnvironment

from commands.accelerate_launch import refuse_lonely


class Team(NamedTuple):
    """Processes that a launcher started."""

    launcher: str
    per_node: int
    nodes: int


class Place(NamedTuple):
    """Where processes that were started apart find each other; `outlives_us` when the launcher serves the store."""

    rank: int
    processes: int
    address: str
    port: int
    outlives_us: bool


def launched_team(environ: Mapping[str, str]) -> Team | None:
    """What torchrun, srun, or somebody who sets RANK and WORLD_SIZE started; None when this process was started alone.

    Kubernetes' PyTorchJob sets them with one process a pod, and no LOCAL_RANK. (Its PET_ variables are torchrun's.)

    Raises:
        ValueError: srun was not told the number of tasks on a node, or was not used in a job of several tasks;
            variables are missing; accelerate launch started one process of several.
    """
    if "TORCHELASTIC_RUN_ID" in environ:
        per_node = int(environ["LOCAL_WORLD_SIZE"])
        return Team("torchrun", per_node, int(environ["WORLD_SIZE"]) // per_node)
    if SLURMEnvironment.detect():
        tasks, nodes = int(environ["SLURM_NTASKS"]), int(environ.get("SLURM_NNODES", "1"))
        if tasks > 1 and "SLURM_STEP_ID" not in environ:
            raise ValueError(
                f"this SLURM job has {tasks} tasks, but this process was started without srun and would wait for the "
                "others for ever: put srun before python, or submit deploy/slurm/train.sbatch"
            )
        if tasks % nodes:
            raise ValueError(f"srun started {tasks} tasks on {nodes} nodes: use --ntasks-per-node, not --ntasks")
        return Team("srun", tasks // nodes, nodes)
    if "RANK" in environ:
        missing = [name for name in ("WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT") if name not in environ]
        if missing:
            raise ValueError(
                f"RANK is {environ['RANK']}, but {' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not "
                "set: every process of a run needs RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT (and LOCAL_RANK and "
                "LOCAL_WORLD_SIZE with several on a machine); a run of one process needs none of them"
            )
        processes = int(environ["WORLD_SIZE"])
        per_node = int(environ.get("LOCAL_WORLD_SIZE", processes if "LOCAL_RANK" in environ else 1))
        if processes % per_node or not 0 <= int(environ["RANK"]) < processes:
            raise ValueError(
                f"RANK {environ['RANK']}, WORLD_SIZE {processes} and LOCAL_WORLD_SIZE {per_node} do not fit together: "
                "RANK counts from 0 to WORLD_SIZE - 1, and every machine has LOCAL_WORLD_SIZE processes"
            )
        return Team("the launcher", per_node, processes // per_node)
    refuse_lonely(environ)
    return None


def meeting_place(environ: MutableMapping[str, str]) -> Place | None:
    """Where the processes of the team meet; None for a process that was started alone.

    Under SLURM, MASTER_ADDR and MASTER_PORT are set unless they are: to the first node and to a port that follows from
    the numbers of job and step. Below the ports that systems hand out, so that nobody has it by chance.
    """
    team = launched_team(environ)
    if team is None:
        return None
    if team.launcher == "srun":
        slurm = SLURMEnvironment()
        job, step = int(environ.get("SLURM_JOB_ID", "0")), int(environ.get("SLURM_STEP_ID", "0"))
        environ.setdefault("MASTER_PORT", str(15000 + (job + 101 * step) % 17000))
        environ.setdefault("MASTER_ADDR", slurm.resolve_root_node_address(environ.get("SLURM_NODELIST", "127.0.0.1")))
        rank = int(environ["SLURM_PROCID"])
    else:
        rank = int(environ["RANK"])
    outlives = environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    processes = team.per_node * team.nodes
    return Place(rank, processes, environ["MASTER_ADDR"], int(environ["MASTER_PORT"]), outlives)


def match_team(devices: str | int | list[int], num_nodes: int, team: Team | None) -> tuple[str | int | list[int], int]:
    """`trainer.devices` and `trainer.num_nodes` for the team; what the config leaves open follows from the launcher.

    Raises:
        ValueError: the config asks for another number of processes than the launcher started.
    """
    if team is None:
        return devices, num_nodes
    if devices == "auto":
        devices = team.per_node
    if num_nodes == 1:
        num_nodes = team.nodes
    wanted = devices if isinstance(devices, int) else len(devices) if isinstance(devices, list) else None
    if devices in (-1, "-1"):
        wanted = None  # all devices; Lightning compares them with the team
    elif isinstance(devices, str):
        wanted = int(devices) if devices.isdigit() else len(devices.strip(",").split(","))
    if (wanted not in (None, team.per_node)) or num_nodes != team.nodes:
        raise ValueError(
            f"{team.launcher} started {team.per_node} process(es) on each of {team.nodes} node(s), but the config has "
            f"trainer.devices {devices} and trainer.num_nodes {num_nodes}: make them equal, or leave devices on auto"
        )
    return devices, num_nodes


_STARTED_BY = "LOCKSTEP_STARTED_BY"


def sign(environ: MutableMapping[str, str]) -> None:
    """Leaves this process's number for the processes that Lightning will start from it."""
    if "LOCAL_RANK" not in environ:
        environ[_STARTED_BY] = str(os.getpid())


def agreed_exit(code: int, environ: Mapping[str, str]) -> int:
    """The exit code for an end that all processes agreed on: of those that Lightning started the first one speaks.

    When one of the others ends with another code than 0, Lightning kills the first at once, in the middle of its end.
    """
    return 0 if environ.get(_STARTED_BY) == str(os.getppid()) else code

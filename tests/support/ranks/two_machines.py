"""Starts torchrun on two hosts."""

import os
from pathlib import Path

from benchmarks.network.machines import Machines
from tests.conftest import REPOSITORY
from tests.support.ranks.team import FORKED_TORCHRUN, ForkServer


def torchrun(forge: ForkServer, machines: Machines, folder: Path, *options: str) -> list[int]:
    """Fork a torchrun of train.py on both machines, as on two nodes, and return their numbers.

    Their logs are `node-0.log` and `node-1.log`.
    """
    variables = {**os.environ, "GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    started = []
    for node, name in enumerate(machines.names):
        log = folder / f"node-{node}.log"
        command = ["-m", "tests.support.ranks.run_in_namespace", name, str(log), *FORKED_TORCHRUN]
        command += ["--nnodes", "2", "--node-rank", str(node), "--nproc-per-node", "1"]
        command += ["--master-addr", machines.addresses[0], "--master-port", "29511"]
        started.append(forge.start([*command, str(REPOSITORY / "train.py"), "fit", *options], variables, folder, log))
    return started

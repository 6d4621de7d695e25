"""Starts torchrun on two hosts."""

import sys
from pathlib import Path

from benchmarks.network.machines import Machines
from tests.conftest import REPOSITORY


def torchrun(machines: Machines, folder: Path, *options: str) -> None:
    """Start train.py on both machines, as on two nodes; their logs are `node-0.log` and `node-1.log`."""
    for node in (0, 1):
        command = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--node-rank", str(node)]
        command += ["--nproc-per-node", "1", "--master-addr", machines.addresses[0], "--master-port", "29511"]
        command += [str(REPOSITORY / "train.py"), "fit", *options]
        log = folder / f"node-{node}.log"
        machines.start(node, command, folder, log, OMP_NUM_THREADS="1", CUDA_VISIBLE_DEVICES="")

"""Runs three nodes under a real SLURM, each a network namespace; a node is lost in mid-epoch, and two finish the run.

    python -m tests.soak.slurm_nodes

As root on Linux, with SLURM (tests/system_packages.sh) and iproute2. HYBRID_SHARD: FSDP2 shards over the two ranks of a
node, with replicas between nodes. A node is lost when its slurmd and all its processes are killed and its cable is cut.
SLURM requeues the job, `scontrol update` gives it the two nodes that are left, and it resumes. It must have the losses
of a run that nobody disturbed, to 1e-5.
"""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import yaml

from tests.conftest import REPOSITORY, TINY, Run
from tests.support.slurm.cluster import Cluster, missing

STEPS, LOST_AFTER = 24, 9
ADDRESSES = ("10.233.78.1", "10.233.78.2", "10.233.78.3")
PATIENCE = 1500.0


@contextmanager
def nodes() -> Iterator[list[str]]:
    """Yield the names of three namespaces that a bridge connects; they and their processes are removed afterwards."""
    mark = f"n{os.getpid() % 100000}"
    bridge, names = f"{mark}br", [f"{mark}-{number}" for number in range(len(ADDRESSES))]
    try:
        run("ip", "link", "add", bridge, "type", "bridge")
        run("ip", "addr", "add", "10.233.78.254/24", "dev", bridge)
        run("ip", "link", "set", bridge, "up")
        for number, (name, address) in enumerate(zip(names, ADDRESSES, strict=True)):
            cable = f"{mark}v{number}"
            run("ip", "netns", "add", name)
            run("ip", "link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", name)
            run("ip", "link", "set", cable, "master", bridge, "up")
            run("ip", "-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
            run("ip", "-n", name, "link", "set", "lo", "up")
            run("ip", "-n", name, "link", "set", "eth0", "up")
        yield names
    finally:
        for name in names:
            kill_all(name)
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)
        subprocess.run(["ip", "link", "del", bridge], check=False, capture_output=True)


def run(*words: str) -> str:
    """Return the output of a command; its error output is raised."""
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


def kill_all(name: str) -> None:
    """Kill all processes of a node."""
    found = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True).stdout.split()
    for pid in found:
        with suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)


def main() -> None:
    """Train undisturbed and disturbed, print the log and compare the losses."""
    if reason := missing():
        raise SystemExit(f"no SLURM cluster: {reason}")
    with tempfile.TemporaryDirectory(prefix="slurm-") as directory, nodes() as names:
        cluster = Cluster(Path(directory) / "cluster", dict(zip(ADDRESSES, names, strict=True)), "10.233.78.254")
        try:
            compare(cluster, Path(directory), names)
        finally:
            cluster.close()


def compare(cluster: Cluster, directory: Path, names: list[str]) -> None:
    """Submit both jobs one after the other; lose the third node of the second job."""
    folder = directory / "shared"
    folder.mkdir()
    (folder / "train.py").symlink_to(REPOSITORY / "train.py")
    init = {"sharding_strategy": "HYBRID_SHARD"}
    strategy = {"class_path": "engine.strategies.fsdp.VerifiedFSDPStrategy", "init_args": init}
    keep = {"best_checkpoint": {"keep": 2}, "last_checkpoint": {"keep": 2, "every_n_steps": 2}}
    config = {"trainer": {"strategy": strategy}, "checkpoints": {"trainable_only": False}, **keep}
    (folder / "sharded.yaml").write_text(yaml.safe_dump(config))
    train = [*TINY, "--config", str(folder / "sharded.yaml"), "--data.init_args.batch_size", "12"]
    train += ["--trainer.max_steps", str(STEPS), "--trainer.gradient_clip_val", "0.1"]
    environment = {
        "PATH": f"{Path(sys.executable).parent}:{cluster.environment['PATH']}",
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "GLOO_SOCKET_IFNAME": "eth0",
    }
    script = str(REPOSITORY / "deploy/slurm/train.sbatch")

    def submit(nodes: str) -> tuple[str, Run]:
        options = ["--nodes", nodes, "--ntasks-per-node", "2"]
        number = cluster.submit(*options, script, *train, folder=folder, environment=environment)
        return number, Run(folder / f"runs/recommender-quickstart+sharded-job{number}")

    number, undisturbed = submit("3")
    job = cluster.end(number, PATIENCE)
    print(f"undisturbed: {job['JobState']} {job['ExitCode']}, nodes {job['NodeList']}", flush=True)
    number, lost = submit("3")
    deadline = time.monotonic() + PATIENCE
    while steps(lost) < LOST_AFTER:
        if time.monotonic() > deadline:
            raise TimeoutError(f"job {number} trains no {LOST_AFTER} steps: {cluster.job(number)}")
        time.sleep(0.05)
    run("ip", "-n", names[2], "link", "set", "eth0", "down")
    kill_all(names[2])
    print(f"lost node {ADDRESSES[2]} after step {steps(lost)}", flush=True)
    # The scheduler writes `ReqNodeNotAvail` or `Nodes_required_for_job_are_DOWN,...`.
    while (job := cluster.job(number))["JobState"] != "PENDING" or not re.search("NotAvail|_DOWN", job["Reason"]):
        if time.monotonic() > deadline:
            raise TimeoutError(f"job {number} is not requeued: {job}")
        time.sleep(1)
    # SLURM keeps the nodes, tasks and CPUs that the job had; its user gives it those that are left.
    cluster.run("scontrol", "update", f"JobId={number}", "NumNodes=2-2", "NumTasks=4", "NumCPUs=4")
    job = cluster.end(number, PATIENCE)
    log = (folder / f"slurm-{number}.log").read_text(errors="replace")
    print(log)
    print(f"disturbed: {job['JobState']} {job['ExitCode']}, restarts {job['Restarts']}, nodes {job['NodeList']}")
    expected, actual = undisturbed.series("train/loss"), lost.series("train/loss")
    worst = max(abs(expected[step] - actual[step]) for step in expected.keys() & actual.keys())
    print(f"steps {len(expected)} and {len(actual)}; largest difference of a loss {worst:.2e}")
    right = expected.keys() == actual.keys() and worst < 1e-5 and job["JobState"] == "COMPLETED"
    raise SystemExit(0 if right and int(job["Restarts"]) else 1)


def steps(run: Run) -> int:
    """Return the last step in a run's metrics, 0 before the first."""
    file = run.folder / "metrics.jsonl"
    lines = file.read_text().splitlines() if file.exists() else []
    return max((json.loads(line).get("step", 0) for line in lines if line.endswith("}")), default=0)


if __name__ == "__main__":
    assert psutil.LINUX
    main()

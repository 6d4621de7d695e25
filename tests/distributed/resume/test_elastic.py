"""Elastic training, `torchrun --nnodes 1:2`: hosts join and leave. Both torchruns are on one machine."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections import Counter

import pytest

from tests.conftest import REPOSITORY, TINY

OPTIONS = [
    *TINY, "--model.init_args.dropout", "0", "--trainer.max_epochs", "-1", "--last_checkpoint.every_n_steps", "20",
    "--run_name", "a", "--ckpt_path", "last",
]  # fmt: skip


@pytest.fixture
def machine(tmp_path):
    """Starts a torchrun; all that it has started is gone after the test."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    agents = []

    def start(name, first):
        meeting = ["--rdzv_id", "1", "--rdzv_backend", "c10d", "--rdzv_endpoint", f"localhost:{port}",
                   "--rdzv_conf", f"is_host={int(first)},last_call_timeout=2"]  # fmt: skip
        with (tmp_path / name).open("w") as output:
            agents.append(
                subprocess.Popen(
                    [sys.executable, "-m", "torch.distributed.run", "--nnodes", "1:2", "--nproc_per_node", "1",
                     "--max-restarts", "3", *meeting, str(REPOSITORY / "train.py"), "fit", *OPTIONS],
                    cwd=tmp_path,
                    env={**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "",
                         "PYTHONPATH": str(REPOSITORY), "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"},
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            )  # fmt: skip
        return agents[-1]

    yield start
    for agent in agents:
        if agent.poll() is None:
            agent.send_signal(signal.SIGTERM)  # torchrun's processes have sessions of their own; it ends them
            try:
                agent.wait(60)
            except subprocess.TimeoutExpired:
                agent.kill()
                agent.wait()


def until(condition, log, timeout=100):
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.1)


@pytest.mark.launcher
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_host_joins_and_is_lost(machine, tmp_path):
    """The steps that were trained are each step once, whoever trained it. Plain Lightning begins again at step 0."""
    log = tmp_path / "first"
    first = machine("first", first=True)
    until((tmp_path / "runs/a/checkpoints/last.ckpt").exists, log)
    second = machine("second", first=False)
    together = going_on(log, "= 2 ranks x 8 samples")
    until(lambda: steps(tmp_path)[-1] > together + 40, log)
    os.killpg(second.pid, signal.SIGKILL)  # its training process finds that out and ends
    assert going_on(log, "= 1 rank x 16 samples", after="= 2 ranks") > together
    first.send_signal(signal.SIGTERM)
    assert first.wait(90) != 0
    assert "stopped by SIGTERM after step" in log.read_text().rpartition("= 1 rank x 16 samples")[2], log.read_text()
    trained = steps(tmp_path)
    assert trained == list(range(1, len(trained) + 1)) and len(trained) > 60


def going_on(log, team, after="\0"):
    """Waits for a start of such a team; returns the step that it goes on after."""

    def log_text():
        return re.search(r"resuming after step (\d+)", log.read_text().split(after)[-1].partition(team)[2])

    until(log_text, log)
    return int(log_text()[1])


def steps(folder):
    """The steps whose loss was logged, in order; each must be there once."""
    lines = (folder / "runs/a/metrics.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines if line.endswith("}")]
    found = Counter(record["step"] for record in records if "train/loss" in record)
    assert set(found.values()) <= {1}, found
    return sorted(found)

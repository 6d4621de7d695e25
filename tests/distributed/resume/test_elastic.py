"""Elastic training, `torchrun --nnodes 1:2`: hosts join and leave. Both torchruns are on one machine."""

import json
import os
import re
import signal
import socket
from collections import Counter

import pytest

from tests.conftest import REPOSITORY, TINY
from tests.support.ranks.team import FORKED_TORCHRUN
from tests.support.waiting import wait_until

OPTIONS = [
    *TINY,
    "--model.init_args.dropout",
    "0",
    "--trainer.max_epochs",
    "-1",
    "--last_checkpoint.every_n_steps",
    "20",
    "--ckpt_path",
    "last",
]


@pytest.fixture
def machine(team):
    """Starts a torchrun; all that it has forked is gone after the test."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    meeting = ["--rdzv_id", "1", "--rdzv_backend", "c10d", "--rdzv_endpoint", f"localhost:{port}"]

    def start(first):
        joins = ["--rdzv_conf", f"is_host={int(first)},last_call_timeout=2"]
        torchrun = [
            *FORKED_TORCHRUN,
            "--nnodes",
            "1:2",
            "--nproc_per_node",
            "1",
            "--max-restarts",
            "3",
            *meeting,
            *joins,
        ]
        apart = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
        train = [str(REPOSITORY / "train.py"), "fit", *OPTIONS]
        return team(*torchrun, *train, name="a", processes=1, environment=apart)

    return start


@pytest.mark.launcher
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_host_joins_and_is_lost(machine, tmp_path):
    """Each step is trained once, by either host. Plain Lightning begins again at step 0."""
    first = machine(first=True)
    log = first.outputs[0]
    wait_until((tmp_path / "runs/a/checkpoints/last.ckpt").exists, 240, log.read_text)
    second = machine(first=False)
    together = going_on(log, "= 2 ranks x 8 samples")
    wait_until(lambda: steps(tmp_path)[-1] > together + 40, 240, log.read_text)
    os.killpg(second.pids[0], signal.SIGKILL)  # torchrun and its rank
    assert going_on(log, "= 1 rank x 16 samples", after="= 2 ranks") > together
    first.signal(0, signal.SIGTERM)
    (code,) = first.end(180)
    assert code not in (0, None)
    assert "stopped by SIGTERM after step" in log.read_text().rpartition("= 1 rank x 16 samples")[2], log.read_text()
    trained = steps(tmp_path)
    assert trained == list(range(1, len(trained) + 1))
    assert len(trained) > 60


def going_on(log, team, after="\0"):
    """Wait for a start of such a team; return the step after which it resumes."""

    def log_text():
        return re.search(r"resuming after step (\d+)", log.read_text().split(after)[-1].partition(team)[2])

    wait_until(log_text, 240, log.read_text)
    return int(log_text()[1])


def steps(folder):
    """The steps whose loss was logged, in order; each must be there once."""
    lines = (folder / "runs/a/metrics.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines if line.endswith("}")]
    found = Counter(record["step"] for record in records if "train/loss" in record)
    assert set(found.values()) <= {1}, found
    return sorted(found)

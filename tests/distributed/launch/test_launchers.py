"""The same command under the launchers of Lightning, Accelerate, torch (the old one) and Kubernetes.

torchrun: resume/test_restarts.py.
"""

import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.conftest import REPOSITORY, TINY, Run
from tests.support.faults.signals import signal_in
from tests.support.ports import free_ports
from tests.support.ranks.team import Team
from tests.support.waiting import wait_until
from tests.tiers import slow

OPTIONS = [*TINY, "--model.init_args.dropout", "0.2", "--trainer.max_epochs", "-1", "--trainer.max_steps", "30"]


@pytest.fixture
def start(tmp_path):
    """Starts a command that starts the processes of a run, and returns the first; none survives."""
    processes = []

    def start(*command):
        processes.append(
            subprocess.Popen(
                [sys.executable, *command],
                cwd=tmp_path,
                env={
                    **os.environ,
                    "OMP_NUM_THREADS": "1",
                    "CUDA_VISIBLE_DEVICES": "",
                    "PYTHONPATH": str(REPOSITORY),
                    "HF_HOME": str(tmp_path),  # where somebody's answers to `accelerate config` would be
                },
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
        )
        return processes[-1]

    yield start
    for process in processes:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)
        process.stdout.close()


TRAIN = str(REPOSITORY / "train.py")


@pytest.fixture
def started(start):
    """Two processes of Lightning's launcher."""
    return lambda *options: start(TRAIN, "fit", *OPTIONS, "--trainer.devices", "2", "--run_name", "a", *options)


def gone(session):
    def is_of_it(process):
        try:
            return os.getsid(process.pid) == session and process.status() != psutil.STATUS_ZOMBIE
        except (psutil.NoSuchProcess, ProcessLookupError):
            return False

    return not any(is_of_it(process) for process in psutil.process_iter())


@pytest.mark.launcher
@pytest.mark.slow
def test_a_signal_to_a_child_of_lightnings_launcher_stops_all(started, tmp_path):
    """Lightning: it hangs; and a child that ends with another code than 0 has the first process killed."""
    tenth = ["--preemption.check_every_n_steps", "10"]
    first = started(*tenth, *signal_in("on_train_batch_start", "SIGTERM", number=18, process=1))
    output, _ = first.communicate(timeout=120)
    assert first.returncode == 143, output
    assert "stopped by SIGTERM after step 20, saved" in output
    assert "Forcefully terminating" not in output
    wait_until(lambda: gone(first.pid))
    again = started("--ckpt_path", "last")
    output, _ = again.communicate(timeout=120)
    assert again.returncode == 0, output
    assert sorted(Run(tmp_path / "runs/a").series("train/loss")) == list(range(1, 31))


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="reads the caught signals from /proc")
@pytest.mark.parametrize(("name", "whole_group", "code"), [("SIGUSR1", False, 143), slow("SIGINT", True, 130)])
def test_a_signal_during_the_imports_stops_the_run_in_order(started, name, whole_group, code):
    """Lightning: the signal kills the process (SIGUSR1: exit code 138), and what it has started waits."""
    first = started()
    number = signal.Signals[name]

    def listens():
        caught = re.search(r"SigCgt:\s*(\w+)", Path(f"/proc/{first.pid}/status").read_text())[1]
        return int(caught, 16) >> (signal.SIGUSR1 - 1) & 1

    wait_until(listens)
    (os.killpg if whole_group else os.kill)(first.pid, number)
    output, _ = first.communicate(timeout=120)
    assert first.returncode == code, output
    assert f"stopped by {name} after step 0, nothing new to save" in output
    wait_until(lambda: gone(first.pid))


def accelerate(*options):
    return ["-m", "accelerate.commands.launch", *options, TRAIN, "fit", *OPTIONS]


@pytest.mark.launcher
@pytest.mark.slow
def test_accelerates_launcher_trains_as_torchrun_does(start, team, tmp_path):
    """Lightning detects torchrun's processes; it ignores the other settings of accelerate without a message."""
    processes = ["--multi_gpu", "--num_processes", "2", "--num_machines", "1", "--main_process_port", "0"]
    first = start(*accelerate(*processes, "--mixed_precision", "bf16"), "--run_name", "a")
    output, _ = first.communicate(timeout=120)
    assert first.returncode == 0, output
    assert "= 2 ranks x 8 samples" in output
    assert output.count("accelerate's mixed precision bf16 is ignored, trainer.precision is 32-true") == 1
    wait_until(lambda: gone(first.pid))
    through = team("fit", *OPTIONS, name="through")
    assert through.end() == [0, 0], through.output
    losses = Run(tmp_path / "runs/a").series("train/loss")
    assert sorted(losses) == list(range(1, 31))
    assert losses == through.series("train/loss")


@pytest.mark.launcher
@pytest.mark.slow
def test_torchs_old_launcher_trains_on_two_ranks(start, tmp_path):
    """`torch.distributed.launch` without `--use_env` passes `--local-rank` to each process."""
    launch = ["-W", "ignore", "-m", "torch.distributed.launch", "--nproc_per_node", "2", "--master_port"]
    first = start(*launch, str(free_ports(1)[0]), TRAIN, "fit", *OPTIONS, "--run_name", "a")
    output, _ = first.communicate(timeout=120)
    assert first.returncode == 0, output
    assert "= 2 ranks x 8 samples" in output
    wait_until(lambda: gone(first.pid))
    assert sorted(Run(tmp_path / "runs/a").series("train/loss")) == list(range(1, 31))


@pytest.mark.launcher
@pytest.mark.slow
def test_accelerates_launcher_that_starts_one_of_two_is_refused(start):
    """Accelerate without GPUs and without --multi_gpu: one process trains on all of the data, without a word."""
    first = start(*accelerate("--cpu", "--num_processes", "2", "--num_machines", "1"), "--run_name", "a")
    output, _ = first.communicate(timeout=120)
    assert first.returncode != 0
    assert "give accelerate launch --multi_gpu" in output


class Pods(Team):
    """Processes as Kubernetes' PyTorchJob starts them: one a machine, no LOCAL_RANK, the first one serves the store."""

    port = 0

    def _launcher(self, rank, processes, restart):
        if not self.port:
            with socket.socket() as listener:
                listener.bind(("127.0.0.1", 0))
                self.port = listener.getsockname()[1]
        return {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(self.port),
            "RANK": str(rank),
            "WORLD_SIZE": str(processes),
        }


@pytest.fixture
def pods(forge, tmp_path):
    teams = []

    def start(*options, **settings):
        teams.append(Pods(forge, ["fit", *OPTIONS, *options], tmp_path, "a", **settings))
        return teams[-1]

    yield start
    for member in teams:
        member.close()


@pytest.mark.launcher
@pytest.mark.slow
def test_the_pods_of_a_kubernetes_job(pods, team):
    """Lightning: every pod trains alone, on all of the data, and all of them write the same files."""
    through = team("fit", *OPTIONS, name="through")
    assert through.end() == [0, 0], through.output
    stopped = pods(*signal_in("on_train_batch_start", "SIGTERM", number=18, process=1))
    assert stopped.end() == [143, 143], stopped.output
    assert "= 2 ranks x 8 samples" in stopped.output
    again = pods("--ckpt_path", "last")
    assert again.end() == [0, 0], again.output
    assert again.series("train/loss") == through.series("train/loss")


def test_a_config_that_contradicts_the_launcher(pods):
    run = pods("--trainer.devices", "2")
    assert run.end() == [2, 2], run.output
    assert "the launcher started 1 process(es) on each of 2 node(s), but the config has trainer.d" in run.logs[0]


def test_a_port_that_another_program_has(pods, monkeypatch):
    with socket.socket() as other:
        other.bind(("0.0.0.0", 0))
        other.listen()
        monkeypatch.setattr(Pods, "port", other.getsockname()[1])
        run = pods()
        assert run.end(of=[0])[0] == 2, run.output  # the other pod keeps waiting for its first process
        assert f"MASTER_PORT {Pods.port} of rank 0 of 2 is in use by another program" in run.logs[0]

"""A fault of one rank ends all ranks in time, and the message names the first.

Each test states what plain Lightning 2.6 does. The time limits are those that docs/reliability.md
promises, with room for a busy machine.
"""

import os
import re
import shutil
import signal
import subprocess
import sys

import psutil
import pytest

from tests.conftest import REPOSITORY, TINY
from tests.support.faults.step_faults import fault
from tests.support.ranks.team import FORKED_TORCHRUN
from tests.support.waiting import wait_until
from tests.tiers import slow

FIT = ["fit", *TINY, "--trainer.max_steps", "8", "--last_checkpoint.every_n_steps", "2"]
QUICK = ["--watchdog.timeout", "4"]


def assert_next_start_finishes(team):
    """The next start takes up the training and finishes it."""
    run = team(*FIT, "--ckpt_path", "last", name="a")
    assert run.end(120) == [0, 0], run.output
    assert sorted(run.series("train/loss")) == [1, 2, 3, 4, 5, 6, 7, 8]


def stacks(run, process):
    return (run.folder / "faults" / f"process-{process}.txt").read_text()


def test_an_exception_on_one_process(team):
    """Plain Lightning: the others print "Connection closed by peer", a page each; with NCCL they wait 10 minutes."""
    run = team(*FIT, *fault("RaiseAt", step=3, process=1), name="a")
    assert run.end_cleanly(90) == [1, 1], run.output
    first = "rank 1 failed at step 3 (training): RuntimeError: injected on process 1"
    assert first in run.logs[0]
    assert "Traceback" not in run.logs[0]
    assert first in run.logs[1]
    assert run.logs[1].count("Traceback") == 1
    assert first in (run.folder / "train.log").read_text()
    assert "in happen" in stacks(run, 1)
    assert first in stacks(run, 0)
    assert_next_start_finishes(team)


def test_wrong_input_of_one_process_at_the_start_ends_all_with_code_2(team):
    """The process that read it and the others exit with the same code, by which a launcher does not restart them."""
    run = team(
        *FIT,
        "--trainer.callbacks+=tests.support.faults.step_faults.RefuseAtStart",
        "--trainer.callbacks.process",
        "1",
        name="a",
    )
    assert run.end(90) == [2, 2], run.output
    assert "refused on process 1" in run.logs[1]
    assert "Traceback" not in run.logs[1]
    assert "rank 1 failed" in run.logs[0]
    assert "refused on process 1" in run.logs[0]


@pytest.mark.slow
def test_an_exception_ends_the_ranks_that_are_connected_and_wait(team):
    """Plain: with a checkpoint on exceptions the failed process waits in its barrier, the others in their all-reduce,
    for 30 minutes, and the error is lost (#20187)."""
    saving = ["--trainer.callbacks+=lightning.pytorch.callbacks.ModelCheckpoint"]
    settings = {"save_on_exception": "true", "monitor": "null", "dirpath": "on_exception"}
    saving += [f"--trainer.callbacks.{key}={value}" for key, value in settings.items()]
    run = team(*FIT, *saving, *fault("RaiseAt", step=3, process=1), name="a")
    codes = run.end_cleanly(90)
    assert 0 not in codes, run.output
    assert "rank 1 failed at step 3 (training): RuntimeError: injected on process 1" in run.logs[0], run.output


@pytest.mark.parametrize("killed", [slow(0), 1])
def test_a_process_is_killed(team, killed):
    """Plain Lightning: the others' "Connection closed by peer" does not name the rank; with NCCL they wait."""
    run = team(*FIT, *fault("SignalAt", name="SIGKILL", step=3, process=killed), name="a")
    other = 1 - killed
    codes = run.end_cleanly(90)
    assert (codes[killed], codes[other]) == (-9, 1), run.output
    assert f"rank {killed} has sent no heartbeat for" in run.logs[other], run.output
    assert f"rank {other} is at step 3" in run.logs[other]
    assert "Traceback" not in run.logs[other], run.logs[other]
    assert "gloo" in stacks(run, other), "the consequence"
    assert_next_start_finishes(team)


def test_a_process_is_stopped(team):
    """Plain Lightning: the others wait for 30 minutes, and no message names the rank that they wait for."""
    run = team(*FIT, *QUICK, *fault("SignalAt", name="SIGSTOP", step=3, process=1), name="a")
    assert run.end(60, of=[0]) == [1, None], run.output
    assert "rank 1 has sent no heartbeat for" in run.logs[0]
    assert "the other ranks wait for it at step 3" in run.logs[0]
    assert "backward" in stacks(run, 0)
    run.signal(1, signal.SIGCONT)  # it ends immediately instead of continuing
    assert run.end_cleanly(60) == [1, 1], run.output


def test_a_rank_that_hangs_ends_all_and_is_named(team):
    """Plain: the others wait for 30 minutes; with NCCL the blame falls on a collective, not on a line of code."""
    run = team(*FIT, *QUICK, *fault("HangAt", step=3, process=1), name="a")
    assert run.end_cleanly(60) == [1, 1], run.output
    assert "rank 1 has been stalled for" in run.logs[0], run.output
    assert "at step 3 (training), in step_faults.py:" in run.logs[0]
    assert "threading.Event().wait()" in stacks(run, 1)
    assert "backward" in stacks(run, 0)
    assert "lockstep-monitor" in stacks(run, 1), "all threads"


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "pause"), reason="takes pause() of a POSIX system")
def test_a_rank_that_hangs_and_holds_pythons_lock_ends_all(team):
    """Plain: as above. No Python code can run in it, not even what watches over it; it ends all the same."""
    run = team(*FIT, *QUICK, *fault("HoldLockAt", step=3, process=1), name="a")
    assert run.end_cleanly(90) == [1, 1], run.output
    assert "rank 1 has sent no heartbeat for" in run.logs[0], run.output
    assert "in happen" in run.logs[1], "its stacks, on its standard error"


@pytest.mark.slow
def test_a_watchdog_without_limits_trains(team):
    """PyTorch takes them: the connections' 24 days as well."""
    run = team(*FIT, "--watchdog.timeout", "0", "--watchdog.start_timeout", "0", name="a")
    assert run.end(90) == [0, 0], run.output


@pytest.mark.slow
def test_a_single_rank_hangs(team):
    """Plain: it stands for ever."""
    run = team(*FIT, *QUICK, *fault("HangAt", step=3), name="a", processes=1)
    assert run.end_cleanly(60) == [1], run.output
    assert "the process has been stalled for" in run.output
    assert "at step 3 (training), in step_faults.py:" in run.output
    assert "threading.Event().wait()" in stacks(run, 0)


@pytest.mark.slow
def test_two_workers_of_a_loader_that_die_end_all(team):
    """Torch raises for the second while Lightning calls the hooks for the first; plain: the other rank waits."""
    run = team(*FIT, *fault("FailsTwice", step=3, process=1), name="a")
    assert run.end_cleanly(90) == [1, 1], run.output
    assert "rank 1 failed at step 3" in run.logs[0], run.output
    assert "DataLoader worker (pid 2)" in run.logs[0], run.output


@pytest.mark.parametrize("name", ["SIGKILL", slow("SIGSEGV")])
def test_a_worker_of_the_loader_ends(team, name):
    """Plain: the other process's "Connection closed by peer" comes last and hides it."""
    workers = ["--data.init_args.num_workers", "1"]
    run = team(*FIT, *workers, *fault("WorkerEndsAt", name=name, step=3, process=1), name="a")
    assert run.end_cleanly(90) == [1, 1], run.output
    assert "rank 1 failed at step" in run.logs[0], run.output
    assert "DataLoader worker" in run.logs[0], run.output
    assert "Traceback" not in run.logs[0]


def test_a_skipped_step_is_never_mixed_with_the_next_one(team):
    """Seed 001's `continue`: in a plain DDP loop the gradients of different batches are averaged, the replicas drift
    apart, and at the end of the epoch somebody waits for 30 minutes."""
    through = team(*FIT, name="through")
    assert through.end(120) == [0, 0], through.output
    run = team(*FIT, *fault("SkipAt", step=3, process=1), name="a")
    assert run.end_cleanly(90) == [1, 1], run.output
    assert "rank 1 failed at step 3 (training)" in run.logs[0], run.output
    expected = through.series("train/loss")
    assert run.series("train/loss") == {step: expected[step] for step in (1, 2, 3)}


# -- torchrun ----------------------------------------------------------------------------------------------------------


@pytest.mark.launcher
@pytest.mark.slow
def test_processes_of_a_killed_torchrun_end(team):
    """Plain: its processes train on as orphans; where they wait in NCCL, for ever and with the GPUs."""
    torchrun = [*FORKED_TORCHRUN, "--standalone", "--nproc-per-node", "2", str(REPOSITORY / "train.py")]
    endless = [*TINY, "--trainer.max_epochs", "-1", "--trainer.check_val_every_n_epoch", "100000"]
    run = team(*torchrun, "fit", *endless, name="a", processes=1)
    run.wait_for("metrics.jsonl")
    wait_until(lambda: len(run.series("train/loss")) > 5, found=lambda: run.output)
    workers = psutil.Process(run.pids[0]).children(recursive=True)
    assert len(workers) == 2
    run.signal(0, signal.SIGKILL)
    _, left = psutil.wait_procs(workers, timeout=40)
    for worker in left:
        worker.kill()
    assert left == [], run.output
    assert "torchrun, which started rank" in run.output or "torchrun's agent or rank 0 is gone" in run.output


# -- Lightning's own launcher: real starts ---------------------------------------------------------------------------

OWN = ["--trainer.devices", "2", "--trainer.strategy", "ddp"]


@pytest.mark.launcher
@pytest.mark.slow
def test_lightnings_launcher_ends_when_its_second_rank_dies(team):
    """Plain: the first process kills itself with SIGKILL, without a word of the reason."""
    run = team(*FIT, *OWN, *fault("SignalAt", name="SIGKILL", step=3, process=1), name="a", processes=1)
    assert run.end_cleanly(150) == [1], run.output
    assert "rank 1 was killed by signal 9" in run.output or "rank 1 has sent no heartbeat" in run.output
    assert "Traceback" not in run.output


@pytest.mark.launcher
@pytest.mark.slow
def test_lightnings_launcher_leaves_no_process_when_its_first_rank_is_killed(team):
    """Plain: the child's fate is left to its connection; waiting in NCCL it is an orphan that holds a GPU. Here the
    first process also hosts the store."""
    run = team(*FIT, *OWN, *fault("SignalAt", name="SIGKILL", step=3, process=0), name="a", processes=1)
    assert run.end(150) == [-9], run.output
    psutil.wait_procs(run.survivors, timeout=30)
    assert run.survivors == []
    assert "rank 0 has sent no heartbeat" in run.output or "rank 0 is gone" in run.output, run.output


@pytest.mark.launcher
@pytest.mark.slow
def test_lightnings_launcher_and_the_second_rank_is_stopped(team):
    """Plain: for ever; and the stopped process would outlive the first."""
    run = team(*FIT, *OWN, *QUICK, *fault("SignalAt", name="SIGSTOP", step=3, process=1), name="a", processes=1)
    assert run.end_cleanly(150) == [1], run.output
    assert "rank 1 has sent no heartbeat for" in run.output


# -- shared memory -----------------------------------------------------------------------------------------------------


def can_mount():
    if not sys.platform.startswith("linux") or os.geteuid() or shutil.which("unshare") is None:
        return False
    command = ["unshare", "-m", "mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", "/dev/shm"]
    return subprocess.run(command, capture_output=True).returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("size", ["4k", "64k"])
def test_shared_memory_is_full(team, size):
    """No room for a worker's locks, or for its batches. Plain: the first does not name shared memory; the second is
    a line from the worker that has lost the batch, and then training waits for it for ever."""
    if not can_mount():
        pytest.skip("a full /dev/shm takes a mount namespace of its own: Linux, root and util-linux's unshare")
    options = [*FIT, "--data.init_args.num_workers", "1", "--data.init_args.max_length", "200"]
    options += ["--watchdog.start_timeout", "25"]
    run = team("-m", "tests.support.ranks.run_with_shared_memory", size, *options, name="a", processes=1)
    assert run.end(120) == [1], run.output
    output = "shared memory" if size == "4k" else r"a batch has 185.9 KiB, but /dev/shm has [\d.]+ KiB free"
    assert re.search(output, run.output), run.output
    assert not list(run.folder.glob("checkpoints/*.ckpt"))

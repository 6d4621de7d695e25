"""Memory that runs out on one of several processes: all end, and what to do is said once."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY, TINY
from tests.distributed.memory_faults import memory_fault

pytestmark = pytest.mark.distributed

TWO = [*TINY, "--trainer.strategy", "ddp", "--trainer.max_steps", "3", "--trainer.num_sanity_val_steps", "0"]


def test_one_process_without_memory_ends_both_and_the_advice_is_said_once(team):
    run = team("fit", *TWO, *memory_fault("ExhaustAt", place="forward", step=1, process=1), name="a", processes=2)
    codes = run.end(240)
    assert None not in codes and 0 not in codes, (codes, run.output)
    assert run.survivors == []
    assert run.output.count("first change:") == 1, run.output
    first = "first change: --data.init_args.micro_batch_size 4 (keeps the global batch of 16, with 2 accumulation"
    assert first in run.said[1] and "batch: global batch 16 = 2 processes x 8 samples x 1 accumulation" in run.said[1]
    assert "process 1 failed at step 1 (training): RuntimeError" in run.said[0]


def test_all_processes_take_the_micro_batch_that_fits_the_one_with_least(team):
    options = ["--trainer.auto_micro_batch", "true", *memory_fault("Hungry", most=3, process=1)]
    run = team("fit", *TWO, *options, name="a", processes=2)
    assert run.end(240) == [0, 0], run.output
    assert "global batch 16 = 2 processes x 2 samples x 4 accumulation steps" in run.output
    assert sorted(run.series("train/loss")) == [1, 2, 3]


def test_a_process_that_the_kernel_killed_for_its_memory_is_said_to_be(team, small_group: Path):
    """Both are in the group from their first step on; it was made for them, so it has killed none before."""
    run = team("fit", *TWO, *memory_fault("KilledFor", group=small_group, step=1), name="a", processes=2)
    codes = run.end(240)
    assert codes[1] == -9 and codes[0] not in (0, None), (codes, run.output)
    assert run.survivors == []
    killed = r"the kernel's out-of-memory killer has ended 1 process\(es\) of this container or job since the run began"
    assert re.search(killed, run.said[0]) and "memory ran out at 0.39 GiB" in run.said[0], run.output


def test_the_next_start_says_that_the_kernel_killed_the_last_one(small_group: Path, tmp_path):
    """A single process has nobody beside it who could say it."""
    limit = next(path for name in ("memory.max", "memory.limit_in_bytes") if (path := small_group / name).exists())
    limit.write_text(str(1500 << 20))
    into_group = ["sh", "-c", f'echo $$ > {small_group}/cgroup.procs && exec "$@"', "sh"]
    one = [*TINY, "--trainer.max_steps", "3", "--trainer.num_sanity_val_steps", "0", "--ckpt_path", "last"]

    def started(*options):
        command = [*into_group, sys.executable, str(REPOSITORY / "train.py"), "fit", *one, *options, "--run_name", "a"]
        output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "timeout": 240}
        return subprocess.run(command, cwd=tmp_path, env={**os.environ, "CUDA_VISIBLE_DEVICES": ""}, **output)

    first = started(*memory_fault("KilledFor", group=small_group, step=1, process=0))
    assert first.returncode == -signal.SIGKILL, first.stdout
    second, third = started(), started()
    assert second.returncode == third.returncode == 0, (second.stdout, third.stdout)
    words = "the last start of this run did not end by itself"
    assert words in second.stdout and "killer has ended 1 process(es) of this container or job since" in second.stdout
    assert "memory ran out at 1.46 GiB" in second.stdout and words not in first.stdout + third.stdout

"""Memory runs out on one rank: all ranks end, and the advice is logged once."""

import re
import signal
from pathlib import Path

import pytest

from tests.conftest import TINY
from tests.support.faults.memory_faults import memory_fault

TWO = [*TINY, "--trainer.strategy", "ddp", "--trainer.max_steps", "3", "--trainer.num_sanity_val_steps", "0"]


def test_out_of_memory_on_one_rank_ends_both_with_one_advice(team):
    run = team("fit", *TWO, *memory_fault("ExhaustAt", phase="forward", step=1, process=1), name="a", processes=2)
    codes = run.end_cleanly(240)
    assert 0 not in codes, (codes, run.output)
    assert run.output.count("first change:") == 1, run.output
    first = "first change: --data.init_args.micro_batch_size 4 (keeps the global batch of 16, with 2 accumulation"
    assert first in run.logs[1]
    assert "batch: global batch 16 = 2 ranks x 8 samples x 1 accumulation" in run.logs[1]
    assert "rank 1 failed at step 1 (training): RuntimeError" in run.logs[0]


@pytest.mark.slow
def test_the_micro_batch_fits_the_rank_with_the_least_memory(team):
    options = ["--trainer.auto_micro_batch", "true", *memory_fault("Hungry", most=3, process=1, like_gpu=True)]
    run = team("fit", *TWO, *options, name="a", processes=2)
    assert run.end(240) == [0, 0], run.output
    assert "global batch 16 = 2 ranks x 2 samples x 4 accumulation steps" in run.output
    assert sorted(run.series("train/loss")) == [1, 2, 3]


def test_a_process_that_was_oom_killed_is_reported_as_such(team, small_group: Path):
    """Both are in the group from their first step on; it was made for them, so it has killed none before."""
    run = team("fit", *TWO, *memory_fault("KilledFor", group=small_group, step=1), name="a", processes=2)
    codes = run.end_cleanly(240)
    assert codes[1] == -9, (codes, run.output)
    assert codes[0] not in (0, None), (codes, run.output)
    killed = r"the kernel's out-of-memory killer has ended 1 process\(es\) of this container or job since the run began"
    assert re.search(killed, run.logs[0]), run.output
    assert "memory ran out at 0.39 GiB" in run.logs[0], run.output


@pytest.mark.slow
def test_the_next_start_reports_an_oom_kill(team, small_group: Path):
    """A single process has no other rank that could report it."""
    one = [*TINY, "--trainer.max_steps", "3", "--trainer.num_sanity_val_steps", "0", "--ckpt_path", "last"]

    def started(*options):
        within = ["-m", "tests.support.ranks.run_in_cgroup", str(small_group)]
        run = team(*within, "fit", *one, *options, name="a", processes=1)
        return run.end(240), run.logs[0]

    first, printed = started(*memory_fault("KilledFor", group=small_group, step=1, process=0))
    assert first == [-signal.SIGKILL], printed
    words = "the last start of this run did not end by itself"
    assert words not in printed
    (second, reported), (third, silent) = started(), started()
    assert second == third == [0], (reported, silent)
    assert words in reported
    assert "killer has ended 1 process(es) of this container or job since" in reported
    assert "memory ran out at 0.39 GiB" in reported
    assert words not in silent

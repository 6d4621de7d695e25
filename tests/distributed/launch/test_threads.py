"""Checks that all ranks compute with the same number of threads, whatever each rank measures."""

import re

import pytest

from tests.conftest import TINY

pytestmark = pytest.mark.distributed


def test_all_ranks_take_the_thread_count_of_the_slowest(team):
    uneven = ["--trainer.callbacks+=tests.support.faults.uneven_threads.UnevenThreads", "--trainer.strategy", "ddp"]
    short = [*TINY, *uneven, "--trainer.limit_val_batches", "0", "--trainer.max_steps", "1"]
    run = team("fit", *short, name="a", processes=2, environment={"OMP_NUM_THREADS": ""})
    assert run.end() == [0, 0], run.output
    assert [(run.folder / f"threads-{rank}").read_text() for rank in range(2)] == ["1", "1"]
    one, several = map(int, re.search(r"threads: 1 of 2 \((\d+) samples/s against (\d+)\)", run.logs[0]).groups())
    assert several < 16 / 0.6
    assert several < one < 16 / 0.2

"""The process that is slower than the others is named."""

import pytest

from callbacks.stragglers import Stragglers, compare
from tests.conftest import TINY
from tests.distributed.conftest import forge, team  # noqa: F401
from tests.distributed.faults import fault


def test_the_slowest_is_compared_with_the_others():
    assert compare([1.0, 4.0, 2.0, 3.0]) == (1, 2.0)
    assert compare([3.0, 1.0]) == (0, 3.0)


def test_settings_are_checked():
    with pytest.raises(ValueError, match="every_n_steps must be at least 1, got 0"):
        Stragglers(every_n_steps=0)
    with pytest.raises(ValueError, match="warn_over_median must be more than 1, got 1"):
        Stragglers(warn_over_median=1.0)


def test_nothing_to_compare_alone(lockstep):
    run = lockstep("fit", *TINY, "--trainer.max_steps", "3", "--stragglers.every_n_steps", "1", name="a")
    assert run.series("train/slowest_process") == {}


@pytest.mark.distributed
def test_a_slow_process_is_named(team):  # noqa: F811
    # 0.3 s more than a step takes even on a machine that does other things besides.
    slow = fault("SlowLoss", process=1, seconds=0.3)
    run = team("fit", *TINY, *slow, "--trainer.max_steps", "9", "--stragglers.every_n_steps", "3", name="a")
    assert run.end(120) == [0, 0], run.output
    slowest = run.series("train/slowest_process")  # logged with every step until the next comparison
    assert min(slowest) == 3 and max(slowest) == 9 and set(slowest.values()) == {1.0}
    assert min(run.series("train/slowest_over_median").values()) > 2
    assert "process 1 is slow: " in run.said[0] and "process 1 is slow" not in run.said[1]
    assert "own time per step, and the share of it in waiting for data: process 0" in (
        run.folder / "train.log"
    ).read_text()

"""Tests that a rank that is slower than the others is reported."""

from types import SimpleNamespace

import pytest
from lightning.pytorch import Callback

from callbacks.performance.stragglers import Stragglers, find_slowest
from tests.conftest import TINY
from tests.distributed.conftest import forge, team  # noqa: F401
from tests.support.fake_trainer import fake_trainer
from tests.support.faults.step_faults import fault


def test_the_slowest_rank_is_compared_with_the_median_of_the_other_ranks():
    assert find_slowest([1.0, 4.0, 2.0, 3.0]) == (1, 2.0)
    assert find_slowest([3.0, 1.0]) == (0, 3.0)


def test_settings_out_of_range_are_refused():
    with pytest.raises(ValueError, match="every_n_steps must be at least 1, got 0"):
        Stragglers(every_n_steps=0)
    with pytest.raises(ValueError, match="warn_over_median must be more than 1, got 1"):
        Stragglers(warn_over_median=1.0)


@pytest.mark.parametrize(("ranks", "stays"), [(1, False), (2, True)])
def test_one_rank_makes_no_comparison(ranks, stays):
    """Lightning calls the hooks of the callbacks that stay in every step."""
    callback, other, loader = Stragglers(), Callback(), SimpleNamespace(waited=0.0)
    trainer = fake_trainer(ranks=ranks, callbacks=[callback, other], train_dataloader=loader)
    callback.on_train_start(trainer, None)
    assert trainer.callbacks == ([callback, other] if stays else [other])


def test_nothing_is_logged_with_one_rank(lockstep):
    run = lockstep("fit", *TINY, "--trainer.max_steps", "3", "--stragglers.every_n_steps", "1", name="a")
    assert run.series("train/slowest_rank") == {}


@pytest.mark.distributed
def test_a_slow_rank_is_named(team):  # noqa: F811
    # 0.3 s more than a step takes even on a machine that does other things besides.
    slow = fault("SlowLoss", process=1, seconds=0.3)
    run = team("fit", *TINY, *slow, "--trainer.max_steps", "9", "--stragglers.every_n_steps", "3", name="a")
    assert run.end(120) == [0, 0], run.output
    slowest = run.series("train/slowest_rank")  # logged with every step until the next comparison
    assert min(slowest) == 3
    assert max(slowest) == 9
    assert set(slowest.values()) == {1.0}
    assert min(run.series("train/slowest_over_median").values()) > 2
    assert "rank 1 is slow: " in run.logs[0]
    assert "rank 1 is slow" not in run.logs[1]
    assert (
        "time per step outside of collectives, and the share of waiting for data in it: rank 0"
        in (run.folder / "train.log").read_text()
    )

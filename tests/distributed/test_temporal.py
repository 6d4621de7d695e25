"""Answers of different lengths on different processes, a batch in rows and packed: the same training all the same."""

import pytest

from tests.temporal import TINY_TEMPORAL

pytestmark = pytest.mark.distributed

OPTIONS = [*TINY_TEMPORAL, "--trainer.max_epochs", "3"]  # 12 steps, validations after 8


def test_one_and_two_processes_train_the_same(lockstep, team):
    alone = lockstep("fit", *OPTIONS, name="alone")
    pair = team("fit", *OPTIONS, name="pair", processes=2)
    assert pair.end(120) == [0, 0], pair.output
    losses, others = alone.series("train/loss"), pair.series("train/loss")
    assert sorted(losses) == list(range(1, 13)) and losses.keys() == others.keys()
    assert max(abs(losses[step] - others[step]) for step in losses) < 1e-5
    for metric in ("val/loss", "val/baseline/blind/loss", "val/exact", "val/baseline/rules/exact"):
        ours, theirs = alone.series(metric), pair.series(metric)
        assert ours.keys() == theirs.keys() and ours
        assert all(abs(ours[step] - theirs[step]) < 1e-5 for step in ours), metric
    assert pair.survivors == []

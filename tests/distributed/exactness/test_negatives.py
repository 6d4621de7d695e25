"""Compares trainings with negatives of the global batch and by popularity on one process, two, and in micro-batches."""

import pytest

from tests.conftest import TINY
from tests.support.outputs.metric_series import assert_same_series

MIXED = [
    *TINY,
    "--model.init_args.loss=sampled_softmax",
    "--model.init_args.dropout=0",
    "--data.init_args.num_negatives=6",
    "--data.init_args.negatives=mixed",
    "--data.init_args.batch_negatives=20",
    "--trainer.max_epochs=-1",
    "--trainer.max_steps=15",
]


@pytest.mark.slow
def test_one_and_two_processes_train_the_same(lockstep, team):
    alone = lockstep("fit", *MIXED, name="alone")
    losses = list(alone.series("train/loss").values())
    assert len(losses) == 15
    assert sum(losses[-3:]) < sum(losses[:3])
    assert_same_series(lockstep("fit", *MIXED, "--data.init_args.micro_batch_size", "4", name="accumulated"), alone)
    pair = team("fit", *MIXED, name="pair", processes=2)
    assert pair.end() == [0, 0], pair.output
    assert_same_series(pair, alone)


def test_a_loss_that_assumes_uniform_negatives_is_refused(lockstep):
    options = ["--model.init_args.loss", "gbce", "--data.init_args.batch_negatives", "20"]
    with pytest.raises(ValueError, match=r"batch_negatives 20 with model.init_args.loss gbce, which is calibrated for"):
        lockstep("fit", *TINY, *options, name="a")

"""Limits and validation intervals count optimizer steps, with any number of ranks and micro-batches."""

import pytest

from engine.data.step_limits import convert_limits_to_micro_batches, num_evaluation_batches
from tests.conftest import TINY
from tests.support.fake_trainer import fake_trainer
from tests.tiers import slow


@pytest.mark.parametrize(
    ("limit", "interval", "steps", "expected"),
    [
        (1.0, 1.0, 13, (1.0, 1.0)),  # whole epochs: nothing to convert
        (5, 1.0, 13, (20, 1.0)),
        (1.0, 3, 13, (1.0, 12)),
        (0.5, 0.5, 13, (24, 12)),  # 6 of 13 steps, validated after 3
        (99, 0.5, 13, (396, 24)),  # more than the epoch has
        (1.0, 0.01, 13, (1.0, 4)),  # at least a step
        (7, 2, None, (28, 8)),  # a stream
    ],
)
def test_limits_and_intervals_count_optimizer_steps(limit, interval, steps, expected):
    trainer = fake_trainer(limit_train_batches=limit, val_check_interval=interval)
    convert_limits_to_micro_batches(trainer, steps, accumulation=4)
    assert (trainer.limit_train_batches, trainer.val_check_interval) == expected


def test_a_limit_of_less_than_a_step_is_refused():
    """Lightning skips the fit loop of a limit of 0, and the command would end with exit code 0."""
    trainer = fake_trainer(limit_train_batches=0.05, val_check_interval=1.0)
    with pytest.raises(ValueError, match="limit_train_batches 0.05 of the 13 steps .* less than a step; .* 0.077"):
        convert_limits_to_micro_batches(trainer, 13, accumulation=4)
    trainer.limit_train_batches = 0.077
    convert_limits_to_micro_batches(trainer, 13, accumulation=4)
    assert trainer.limit_train_batches == 4


@pytest.mark.parametrize(
    ("limit", "batches", "expected", "left"),
    [
        (1.0, 7, None, 1.0),
        (3, 7, 3, 3),
        (0.5, 7, 3, 3),
        (0.1, 7, None, 0.1),  # less than a batch: Lightning refuses it
        (0, 7, None, 0),  # no evaluation
        (3, None, 3, 3),  # a stream
        (0.5, None, None, 0.5),  # Lightning refuses it
    ],
)
@pytest.mark.parametrize("stage", ["val", "test", "predict"])
def test_the_limit_of_evaluation_batches_is_applied_once(stage, limit, batches, expected, left):
    trainer = fake_trainer(**{f"limit_{stage}_batches": limit})
    for _ in range(2):  # a second loader must get the same limit
        assert num_evaluation_batches(trainer, stage, batches) == expected
    assert getattr(trainer, f"limit_{stage}_batches") == left


@pytest.mark.parametrize("interval", ["5", slow("0.4")])
def test_accumulation_moves_no_validation(lockstep, interval):
    """Plain Lightning: with 4 micro-batches to a step the validations come 4 times as often, also between steps."""
    options = [
        *TINY,
        "--trainer.val_check_interval",
        interval,
        "--trainer.limit_train_batches",
        "11",
        "--trainer.max_epochs",
        "2",
        "--model.init_args.dropout",
        "0",
    ]
    uninterrupted = lockstep("fit", *options, name="whole")
    parts = lockstep("fit", *options, "--data.init_args.micro_batch_size", "4", name="parts")
    assert sorted(uninterrupted.series("train/loss")) == sorted(parts.series("train/loss")) == list(range(1, 23))
    ours, theirs = parts.series("val/ndcg@10"), uninterrupted.series("val/ndcg@10")
    assert sorted(ours) == sorted(theirs) == ([5, 10, 16, 21, 22] if interval == "5" else [4, 8, 15, 19, 22])
    assert all(abs(ours[step] - theirs[step]) < 0.01 for step in ours)

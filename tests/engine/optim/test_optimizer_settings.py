"""Tests the optimizer's settings: settings that train nothing, or little, are reported."""

import pytest
from torch import nn

from engine.optim.optimizer_settings import OptimizerSettings


def build(rate, *groups, schedule="constant", warmup_steps=0, total_steps=None, max_steps=-1):
    settings = OptimizerSettings(
        learning_rate=rate,
        optimizer="adamw",
        betas=(0.9, 0.98),
        weight_decay=0.0,
        schedule=schedule,
        warmup_steps=warmup_steps,
        final_fraction=0.0,
        decay_fraction=0.1,
        decay_rate=0.5,
        decay_steps=1,
        lr_scaling="none",
        base_batch_size=None,
        offload=False,
        fused=False,
    )
    weights = [{"params": [nn.Linear(2, 2).weight], **group} for group in groups]
    return settings.build(
        weights,
        batch_size=8,
        total_steps=lambda: total_steps,
        embeddings=(),
        hidden=(),
        tables=(),
        max_steps=max_steps,
    )


def test_a_rate_of_zero_is_reported(messages):
    build(0.0, {}, {})
    assert messages == ["model.init_args.learning_rate is 0, so the training changes no weight; expected more than 0"]


def test_a_group_with_a_rate_of_its_own_trains(messages):
    build(0.0, {}, {"lr": 1e-3})
    build(1e-3, {})
    assert messages == []


def test_a_warm_up_that_ends_after_the_training_is_reported(messages):
    build(1e-3, {}, schedule="cosine", warmup_steps=19, total_steps=20)
    assert messages == []
    build(1e-3, {}, schedule="cosine", warmup_steps=20, total_steps=20)
    assert messages == [
        "model.init_args.warmup_steps is 20, and the training has 20 steps: the learning rate never reaches its peak; "
        "lower it, or train for longer"
    ]


@pytest.mark.parametrize("schedule", ["constant", "exponential"])
def test_a_schedule_without_an_end_is_compared_with_the_limit_of_the_trainer(messages, schedule):
    build(1e-3, {}, schedule=schedule, warmup_steps=1000)
    build(1e-3, {}, schedule=schedule, warmup_steps=1000, max_steps=1001)
    assert messages == []
    build(1e-3, {}, schedule=schedule, warmup_steps=1000, max_steps=500)
    assert messages[0].startswith("model.init_args.warmup_steps is 1000, and the training has 500 steps:")

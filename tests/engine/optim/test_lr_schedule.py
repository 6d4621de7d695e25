"""Tests the learning rate schedules."""

import pytest
import torch

from engine.optim.lr_schedule import StepSchedule, lr_lambda, scale_lr


def schedule(name, **options):
    return lr_lambda(
        name, **{"final_fraction": 0.0, "decay_fraction": 0.3, "decay_rate": 0.98, "decay_steps": 1000, **options}
    )


def test_each_schedule_follows_its_warm_up():
    constant = schedule("constant", warmup_steps=4)
    assert [constant(step) for step in range(6)] == [0.25, 0.5, 0.75, 1, 1, 1]
    cosine = schedule("cosine", warmup_steps=2, total_steps=12, final_fraction=0.1)
    assert [round(cosine(step), 3) for step in (0, 1, 2, 7, 12, 20)] == [0.5, 1, 1, 0.55, 0.1, 0.1]
    exponential = schedule("exponential", decay_rate=0.5, decay_steps=10)
    assert [exponential(step) for step in (0, 10, 30)] == [1, 0.5, 0.125]


def test_cosine_needs_an_end():
    with pytest.raises(ValueError, match="max_epochs or trainer.max_steps"):
        schedule("cosine")


def test_the_rate_follows_the_batch():
    assert scale_lr(1e-3, "none", 512, None) == 1e-3
    assert scale_lr(1e-3, "linear", 512, 128) == 4e-3
    assert scale_lr(1e-3, "sqrt", 512, 128) == 2e-3
    with pytest.raises(ValueError, match="set model.init_args.base_batch_size to"):
        scale_lr(1e-3, "linear", 512, None)
    with pytest.raises(ValueError, match="base_batch_size must be at least 1, got 0"):
        scale_lr(1e-3, "sqrt", 512, 0)


def test_stable_decay_warms_up_stays_and_falls():
    factor = schedule("stable_decay", warmup_steps=10, total_steps=100, final_fraction=0.1, decay_fraction=0.2)
    assert factor(0) == 0.1
    assert [factor(step) for step in (9, 10, 50, 80)] == [1.0] * 4
    assert factor(90) == pytest.approx(0.1 + 0.9 * 0.5)
    assert factor(100) == factor(120) == pytest.approx(0.1)
    falling = [factor(step) for step in range(80, 101)]
    assert falling == sorted(falling, reverse=True)
    assert len(set(falling)) == 21


def test_stable_decay_needs_an_end():
    with pytest.raises(ValueError, match="stable_decay schedule needs an end"):
        schedule("stable_decay")


def test_a_state_of_another_scheduler_is_named():
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    schedule = StepSchedule(optimizer, lambda step: 0.5**step)
    saved = schedule.state_dict()
    StepSchedule(optimizer, lambda step: 1.0).load_state_dict(saved)
    saved.pop("lr_lambdas")
    with pytest.raises(ValueError, match=r"another scheduler's state: lr_schedulers\[0\].lr_lambdas not found"):
        schedule.load_state_dict(saved)

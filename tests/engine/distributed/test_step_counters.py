"""Tests step counters of one process, and the steps at which they are polled. tests/distributed has several ranks."""

import pytest
import torch
from torch import nn

from engine.distributed.step_counters import PollSchedule, StepCounters
from engine.optim.global_loss_mean import GlobalLossMean, LossSum


def step(counters):
    weight = nn.Parameter(torch.ones(3))
    mean = GlobalLossMean(4)
    mean.add(LossSum((weight * 2).sum(), 3)).backward()
    assert mean.normalize_gradients([weight], counters) == 2.0
    assert weight.grad.tolist() == pytest.approx([2 / 3] * 3)


def test_additions_are_in_the_total_from_the_next_step_on():
    counters = StepCounters()
    counters.register("stop")
    counters.register("full disk")
    assert counters.total("stop") == 0
    counters.add("full disk")
    assert counters.total("full disk") == 0, "not before the step"
    step(counters)
    assert (counters.total("stop"), counters.total("full disk")) == (0, 1)
    counters.add("stop", 2)
    step(counters)
    step(counters)
    assert (counters.total("stop"), counters.total("full disk")) == (2, 1)


def test_a_counter_must_be_registered():
    counters = StepCounters()
    with pytest.raises(KeyError):
        counters.add("stop")
    with pytest.raises(KeyError, match="is not registered"):
        counters.total("stop")


def polled(schedule, seconds, steps=30):
    steps_polled = []
    for step in range(1, steps + 1):
        if schedule.due(step):
            schedule.record(step, seconds * step)
            steps_polled.append(step)
    return steps_polled


def test_ranks_are_polled_after_a_fixed_number_of_steps():
    assert polled(PollSchedule(10), 100.0) == [10, 20, 30]
    assert polled(PollSchedule(1), 0.0) == list(range(1, 31))


def test_ranks_are_polled_about_every_two_seconds():
    assert polled(PollSchedule(None), 0.0) == [1, 2, 12, 22]
    assert polled(PollSchedule(None), 0.1) == [1, 2, 12, 22]
    assert polled(PollSchedule(None), 0.7) == [1, *range(2, 31, 2)]
    assert polled(PollSchedule(None), 60.0) == list(range(1, 31))

"""Tests the facts that are derived from a curve."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datamodules.temporal.timelines.channels import CHANNELS, Format, Scale
from datamodules.temporal.timelines.text.facts import (
    Direction,
    Facts,
    Pace,
    StartTime,
    bottleneck,
    feasibility,
    readout,
    trend,
)

PERCENT = Scale("%", 0, 100)
curves = st.lists(st.tuples(st.integers(0, 100), st.booleans()), min_size=2, max_size=40).filter(
    lambda curve: any(present for _, present in curve)
)


def arrays(curve):
    return np.array([level for level, _ in curve]), np.array([present for _, present in curve])


@given(curves, st.integers(1, 100))
def test_feasibility_follows_from_every_present_sample(curve, requirement):
    facts = feasibility("gpu_sm", PERCENT, *arrays(curve), requirement)
    there = [(step, level) for step, (level, present) in enumerate(curve) if present]
    enough = [(step, level) for step, level in there if level >= requirement]
    if not enough:
        assert (facts.verdict, facts.time, facts.value) == (StartTime.NEVER, None, max(level for _, level in there))
    elif enough[0] == there[0]:
        assert (facts.verdict, facts.time, facts.value) == (StartTime.NOW, None, there[0][1])
    else:
        assert (facts.verdict, facts.time, facts.value) == (StartTime.LATER, *enough[0])


@given(curves)
def test_the_bottleneck_is_the_first_minimum_and_lasts_while_the_curve_stays_near_it(curve):
    facts = bottleneck("gpu_sm", PERCENT, *arrays(curve), how_long=True)
    there = [(step, level) for step, (level, present) in enumerate(curve) if present]
    lowest = min(level for _, level in there)
    first = next(step for step, level in there if level == lowest)
    last = first
    for step, level in there:
        if step > first:
            if level - lowest > 5:
                break
            last = step
    assert (facts.value, facts.time, facts.lasts) == (lowest, first, last - first + 1)


@given(curves)
def test_the_levels_that_a_trend_prints_are_those_that_decide_it(curve):
    facts = trend("gpu_sm", PERCENT, 100, *arrays(curve), how_fast=True)
    there = [level for level, present in curve if present]
    count = max(1, len(there) // 10)
    assert abs(facts.start - np.mean(there[:count])) <= 0.5
    assert abs(facts.end - np.mean(there[-count:])) <= 0.5
    change = facts.end - facts.start
    expected = Direction.STABLE if abs(change) < 5 else Direction.RISING if change > 0 else Direction.FALLING
    assert facts.direction == expected
    assert (facts.pace is None) == (expected == Direction.STABLE)


@pytest.mark.parametrize("change, pace", [(100, Pace.FAST), (50, Pace.MODERATE), (10, Pace.SLOW)])
def test_only_a_steep_slope_is_called_fast(change, pace):
    levels = np.linspace(0, change, 80).round().astype(int)  # eight seconds
    assert trend("gpu_sm", PERCENT, 100, levels, np.ones(80, bool), how_fast=True).pace == pace


@given(curves)
def test_missing_samples_tell_nothing(curve):
    levels, present = arrays(curve)
    changed = np.where(present, levels, 100 - levels)
    for facts in (
        lambda levels: trend("gpu_sm", PERCENT, 100, levels, present, True),
        lambda levels: bottleneck("gpu_sm", PERCENT, levels, present, True),
        lambda levels: feasibility("gpu_sm", PERCENT, levels, present, 50),
    ):
        assert facts(levels) == facts(changed)


def test_facts_survive_json():
    facts = readout("gpu_sm", PERCENT, np.arange(10), (2, 5))
    assert Facts.from_record(facts.as_record()) == facts
    facts = trend("gpu_sm", PERCENT, 100, np.arange(10), np.ones(10, bool), True)
    assert Facts.from_record(facts.as_record()) == facts


@pytest.mark.parametrize("channel", CHANNELS, ids=lambda channel: channel.key)
@pytest.mark.parametrize("format", Format)
def test_every_level_is_shown_exactly(channel, format):
    for capacity in channel.capacities:
        scale = Scale.for_channel(channel, format, capacity)
        levels = np.arange(scale.top + 1)
        assert (scale.levels(levels / scale.top) == levels).all()
        assert (scale.levels((levels / scale.top).astype(np.float32)) == levels).all()
        for level in (0, 1, scale.top // 3, scale.top):
            assert float(f"{scale.value(level):.{scale.decimals}f}") == scale.value(level)

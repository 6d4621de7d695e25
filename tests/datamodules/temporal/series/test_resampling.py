"""Tests the resampling rule on any stamps against a plain loop."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datamodules.temporal.series.resampling import resample

_DISTANCES = st.lists(st.integers(0, 50), min_size=1, max_size=40).filter(any)
_VALUES = st.one_of(st.none(), st.integers(-1000, 1000))


def plain(times, values, step):
    """The rule as a loop: each measurement goes to the step whose centre is nearest, the later one of two."""
    length = math.floor((times[-1] - times[0]) / step + 0.5) + 1
    cells = [[] for _ in range(length)]
    for time, value in zip(times, values, strict=True):
        slot = min(range(length), key=lambda k: (abs(time - times[0] - k * step), -k))
        if value is not None:
            cells[slot].append(value)
    return [math.fsum(cell) / len(cell) if cell else math.nan for cell in cells]


@given(st.data(), _DISTANCES, st.sampled_from([None, 5, 10, 30]))
def test_every_measurement_counts_in_the_nearest_step(data, distances, step):
    times = np.cumsum([0, *distances]).astype(float) + 1000
    values = [data.draw(_VALUES) for _ in times]
    column = np.array([math.nan if value is None else value for value in values], float)
    resampled = resample(times, column, step, 10_000)
    apart = sorted(distance for distance in distances if distance)
    assert resampled.step == (step or apart[(len(apart) - 1) // 2])
    np.testing.assert_allclose(resampled.values, plain(times, values, resampled.step), rtol=1e-12)


@given(st.integers(1, 1000), st.lists(st.one_of(st.just(math.nan), st.floats(-1e9, 1e9)), min_size=2, max_size=50))
def test_regular_stamps_keep_their_values_to_the_bit(step, values):
    column = np.array(values)
    resampled = resample(np.arange(len(values)) * float(step), column, None, 1000)
    assert resampled.step == step
    assert np.array_equal(resampled.values, column, equal_nan=True)


def test_a_gap_is_marked_and_nothing_is_interpolated():
    resampled = resample(np.array([0.0, 10, 20, 60, 70]), np.array([1.0, 2, 3, 4, 5]), None, 100)
    np.testing.assert_array_equal(resampled.values, [1, 2, 3, np.nan, np.nan, np.nan, 4, 5])


def test_irregular_multiples_of_ten_seconds_do_not_become_mostly_gaps():
    """The lower median of the distances is the step, not the smallest distance."""
    distances = [300] * 50 + [10] + [290, 310] * 20
    resampled = resample(np.cumsum([0.0, *distances]), np.ones(len(distances) + 1), None, 1000)
    assert resampled.step == 300
    assert np.isnan(resampled.values).mean() < 0.05


@pytest.mark.parametrize(
    ("times", "step", "message"),
    [
        ([0, 10, 5], None, r"stamp 3 is 5, after 10; expected stamps in order"),
        ([0, 1, 2, 1e6], None, r"span 1,000,001 steps of 1 s, expected at most 100"),
    ],
)
def test_unordered_and_far_stamps_are_refused(times, step, message):
    with pytest.raises(ValueError, match=message):
        resample(np.array(times, float), np.zeros(len(times)), step, 100)


def test_a_single_stamp_is_a_step_of_unknown_length():
    resampled = resample(np.array([7.0, 7.0]), np.array([1.0, 3.0]), None, 10)
    assert resampled.values.tolist() == [2.0]
    assert resampled.step is None


@pytest.mark.parametrize("step", [0.0005, 0.001, 0.002, 0.01])
@pytest.mark.parametrize("gap", [0, 1, 37])
def test_fast_regular_stamps_since_1970_keep_their_values(step, gap):
    """float64 rounds them to 2.4e-7 s; the step that they have is the one they were written with."""
    number = 10_000
    steps = np.arange(number) + np.where(np.arange(number) >= number // 3, gap, 0)
    times = 1_714_543_200.123 + steps * step
    values = np.arange(number, dtype=np.float64)
    found = resample(times, values, None, 20_000)
    assert found.step == pytest.approx(step, rel=1e-6)
    assert len(found.values) == number + gap
    np.testing.assert_array_equal(found.values[steps], values)
    assert np.isnan(found.values).sum() == gap

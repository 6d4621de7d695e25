"""Tests that normalisation is lossless: the numbers in the text restore the values."""

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from datamodules.temporal.series.normalization import normalize

_NUMBERS = st.floats(-1e30, 1e30, allow_nan=False, allow_subnormal=False)


@given(st.lists(st.one_of(st.just(math.nan), _NUMBERS), min_size=1, max_size=30))
@example([5.0, 5.0])
@example([0.0])
@example([1e9 + 1e-3, 1e9])
@example([-3.25, math.nan, 1e-9])
def test_values_are_found_again(values):
    column = np.array(values)
    normalized = normalize(column)
    assert normalized.shares.dtype == np.float32
    assert normalized.present.tolist() == (~np.isnan(column)).tolist()
    assert ((normalized.shares >= 0) & (normalized.shares <= 1)).all()
    assert not normalized.shares[~normalized.present].any()
    measured = column[normalized.present]
    if not len(measured):
        return
    offset, scale = float(normalized.offset), float(normalized.scale)
    assert offset <= measured.min() * (1 + math.copysign(1e-15, measured.min()))
    assert scale > 0
    # Shares are float32; where the range is finer than float64 resolves, the values' own precision limits.
    tolerance = 1e-7 * scale + 4e-16 * np.abs(measured).max()
    np.testing.assert_allclose(normalized.values()[normalized.present], measured, rtol=0, atol=tolerance)


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6))
def test_offset_and_scale_have_few_digits(low, span):
    normalized = normalize(np.array([low, low + span]))
    assert len(normalized.scale.replace(".", "").strip("0")) <= 4
    assert float(normalized.scale) <= span * 1.03 + 1e-9


@pytest.mark.parametrize(
    ("values", "offset", "scale"),
    [
        ([12.5, 20.83], "12.5", "8.33"),
        ([0.0, 100.0], "0", "100"),
        ([-3.14159, 2.0], "-3.15", "5.15"),
        ([0.00012, 0.00047], "0.00012", "0.00035"),
        ([math.nan], "0", "1"),
    ],
)
def test_offset_and_scale_are_those_that_the_text_states(values, offset, scale):
    normalized = normalize(np.array(values))
    assert (normalized.offset, normalized.scale) == (offset, scale)

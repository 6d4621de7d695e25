"""Tests the times that users give; tests/datamodules/recommender/reading/test_event_times.py has ISO 8601 dates."""

import numpy as np
import pytest

from engine.timestamp import LATEST_TIME, to_seconds


@pytest.mark.parametrize(
    ("value", "seconds"),
    [(0, 0), (1.5, 1.5), (LATEST_TIME, LATEST_TIME), (np.int64(7), 7), (np.float32(0.5), 0.5), ("1970-01-02", 86_400)],
)
def test_numbers_and_dates_are_times(value, seconds):
    found = to_seconds(value)
    assert found == seconds
    assert type(found) in (int, float)


@pytest.mark.parametrize(
    "value",
    [
        -1,
        LATEST_TIME + 1,
        10**400,
        float("nan"),
        True,
        None,
        "7",
        "2300-01-01",
        "1970-02-30",
        "1970-01-02T03:04+01:",
        [1],
    ],
)
def test_other_values_are_none(value):
    assert to_seconds(value) is None

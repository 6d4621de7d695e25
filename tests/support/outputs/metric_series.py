"""Compares the metrics that two runs logged."""

from collections.abc import Iterable

import pytest

from tests.conftest import Run


def assert_same_series(run: Run, other: Run, metrics: Iterable[str] = ("train/loss",), tolerance: float = 1e-5) -> None:
    """Assert that both runs logged each metric at the same steps, with values that differ by at most `tolerance`."""
    for metric in metrics:
        expected = other.series(metric)
        assert expected, metric
        assert run.series(metric) == pytest.approx(expected, abs=tolerance), metric

"""Tests the rates of named outcomes."""

import pytest

from lightning_modules.multimodal.evaluation.outcome_metric import OutcomeRate


def test_rates_are_sums_over_counts():
    tally = OutcomeRate(["exact", "near", "never"])
    tally.update({"exact": (1.0, 1.0), "near": (2.0, 3.0)})
    tally.update({"exact": (0.0, 1.0)})
    assert tally.compute() == {"exact": 0.5, "near": pytest.approx(2 / 3)}
    tally.reset()
    tally.update({})
    assert tally.compute() == {}


def test_an_unknown_outcome_is_refused():
    with pytest.raises(KeyError, match="other"):
        OutcomeRate(["exact"]).update({"other": (1.0, 1.0)})

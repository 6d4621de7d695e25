"""Tests metrics over several answers: intervals, calibration, balanced accuracy, page recall."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datamodules.document_qa.batch import AnswerRecord, Evidence, ModelAnswer
from datamodules.document_qa.grading.balanced_accuracy import balanced_accuracy
from datamodules.document_qa.grading.calibration import calibration_error
from datamodules.document_qa.grading.page_recall import (
    is_evidence_page,
    page_recall,
    reciprocal_rank,
    strongest_evidence,
)
from engine.statistics.confidence_intervals import difference, mean, wilson


def test_wilson_intervals_are_the_published_ones():
    # Newcombe, 1998 ("Two-sided confidence intervals for the single proportion"), table I, method 3.
    assert wilson(81, 263) == pytest.approx((0.2553, 0.3662), abs=1e-4)
    assert wilson(15, 148) == pytest.approx((0.0624, 0.1605), abs=1e-4)
    assert wilson(0, 20) == pytest.approx((0.0, 0.1611), abs=1e-4)
    with pytest.raises(ValueError, match="no questions, so there is no interval"):
        wilson(0, 0)


def test_the_interval_of_a_difference_is_the_published_one():
    # Newcombe, 1998 ("Interval estimation for the difference"), table II, method 10: 56/70 - 48/80.
    first, second = mean([1.0] * 48 + [0.0] * 32), mean([1.0] * 56 + [0.0] * 14)
    assert difference(first, second) == pytest.approx((0.0524, 0.3339), abs=1e-4)


@given(st.integers(0, 50), st.integers(1, 50))
def test_an_interval_holds_its_share(right, wrong):
    figure = mean([1.0] * right + [0.0] * wrong)
    assert 0 <= figure.low <= figure.value <= figure.high <= 1
    assert figure.low < figure.high


def test_points_between_have_their_standard_error():
    assert mean([0.0, 0.5, 1.0]) == pytest.approx((0.5, 3, 0.0, 1.0))
    assert mean([0.4]) == (0.4, 1, None, None)


def test_calibration_error_equals_that_by_hand():
    # Two bins: confidence 0.9 with all answers right, confidence 0.5 with half of them right.
    assert calibration_error([0.9] * 4 + [0.5] * 4, [1.0] * 4 + [1.0, 0.0] * 2) == pytest.approx(0.05)
    assert calibration_error([1.0, 0.0], [1.0, 0.0]) == 0.0


@given(st.lists(st.tuples(st.floats(0, 1), st.sampled_from([0.0, 1.0])), min_size=1, max_size=30))
def test_calibration_does_not_depend_on_the_order(answers):
    first, second = ([list(column) for column in zip(*some, strict=True)] for some in (answers, answers[::-1]))
    assert calibration_error(*first) == calibration_error(*second) <= 1.0


def test_a_preference_for_a_letter_does_not_help():
    right = [1] * 8 + [0, 2]
    assert balanced_accuracy(right, [1] * 10) == pytest.approx(1 / 3)
    assert balanced_accuracy(right, right) == 1.0


def test_recall_and_reciprocal_rank_of_pages_equal_those_by_hand():
    assert page_recall([3, 1, 2], [1, 2], 1) == 0.0
    assert page_recall([3, 1, 2], [1, 2], 2) == 0.5
    assert page_recall([3, 1, 2], [1, 2], 4) == 1.0
    assert reciprocal_rank([3, 1, 2], [2, 1]) == 0.5
    assert reciprocal_rank([3], [1]) == 0.0
    assert is_evidence_page(2, (1, 2)) == 1.0
    assert is_evidence_page(3, (1, 2)) == 0.0
    with pytest.raises(ValueError, match="without evidence pages has no recall"):
        page_recall([1], [], 1)


def test_an_answer_rests_on_what_costs_most():
    chunks = tuple(Evidence(page, "text", (0, 0, 1, 1), cost) for page, cost in ((1, 0.1), (2, 0.7), (3, 0.7)))
    assert strongest_evidence(AnswerRecord(0, ModelAnswer("", (), 1.0), evidence=chunks)).page == 2
    assert strongest_evidence(AnswerRecord(0, ModelAnswer("", (), 1.0))) is None

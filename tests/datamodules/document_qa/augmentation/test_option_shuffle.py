"""Tests the shuffling of options."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from datamodules.document_qa.augmentation.option_shuffle import shuffle_options
from datamodules.document_qa.prompt.option_references import refers_to_others
from datamodules.document_qa.types.question import Question


@given(st.lists(st.text(max_size=3), min_size=1, max_size=9), st.data(), st.integers(0, 99))
def test_the_right_text_stays_the_right_one(options: list[str], data: st.DataObject, key: int) -> None:
    right = data.draw(st.integers(0, len(options) - 1))
    question = Question("1", "?", "pump", tuple(options), options[right], right)
    assume(not refers_to_others(question))
    other = shuffle_options(question, np.random.Generator(np.random.Philox(key=key)))
    assert other.right is not None
    assert other.options[other.right] == options[right] == other.answer
    assert sorted(other.options) == sorted(options)
    assert other._replace(options=question.options, right=right) == question


def test_the_right_option_may_be_at_every_index() -> None:
    question = Question("1", "?", "pump", ("a", "b", "c"), "b", 1)
    random = np.random.Generator(np.random.Philox(key=5))
    indices = [shuffle_options(question, random).right for _ in range(300)]
    assert all(70 < indices.count(index) < 130 for index in range(3))


def test_an_open_question_and_one_without_an_answer_are_taken_too() -> None:
    random = np.random.Generator(np.random.Philox(key=5))
    question = Question("1", "?", "pump", answer="3 m")
    assert shuffle_options(question, random) == question
    assert shuffle_options(Question("1", "?", "pump", ("a", "b")), random).right is None


@pytest.mark.parametrize(
    "option",
    [
        "both A and B",
        "none of the above",
        "All of the above.",
        "A or C",
        "Neither A nor B",
        "only B",
        "(A) and (C)",
        "AB",
        "Options A, B and C",
        "Neither",
        "A和B都对",
        "以上都不对",
        "Ａ、Ｃ",
        "上述选项均正确",
        "仅A",
        "都不是",
        "以上三项",
    ],
)
def test_options_that_refer_to_others_stay_where_they_are(option: str) -> None:
    question = Question("1", "?", "pump", ("steel", "brass", "nylon", option), option, 3)
    for key in range(20):
        assert shuffle_options(question, np.random.Generator(np.random.Philox(key=key))) == question


@pytest.mark.parametrize(
    "options",
    [
        ("above the gear", "below the gear"),
        ("A", "B"),
        ("10 mm以上", "上述装置"),
        ("A3 and B4", "both sides"),
        ("all around", "none"),
        ("BA", "DE"),
        ("a and b", "steel and brass"),
        ("都可以", "A 12"),
        ("FAB", "Band A"),
    ],
)
def test_other_options_may_be_moved(options: tuple[str, ...]) -> None:
    assert not refers_to_others(Question("1", "?", "pump", options))

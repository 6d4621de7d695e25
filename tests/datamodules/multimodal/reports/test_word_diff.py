"""Tests that differences of two texts are marked by whole words, and that nothing of a text is lost."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from datamodules.multimodal.reports.word_diff import word_differences
from tests.support.outputs.report_page import ATTACK


@pytest.mark.parametrize(
    ("truth", "answer", "missing", "wrong"),
    [
        ("cpu is rising.", "cpu is rising.", [], []),
        ("from 42% to 4%.", "from 42% to 14%.", ["4"], ["14"]),
        ("at 1.5s it is 3.25 GB", "at 1.6s it is 3.25 GB", ["1.5"], ["1.6"]),
        ("a b c", "", ["a b c"], []),
        ("", "a b", [], ["a b"]),
        ("a  b", "a b", [], []),
        ("now, it is -3", "later, it is 3", ["now", "-"], ["later"]),
    ],
)
def test_differences_are_marked_by_whole_words(truth, answer, missing, wrong):
    ours, theirs = word_differences(truth, answer)
    assert [text for text, differs in ours if differs] == missing
    assert [text for text, differs in theirs if differs] == wrong


@settings(max_examples=60, deadline=None)
@given(st.text(), st.text())
@example("  two  spaces\n", "1.2.3 x_y é 漢字 <b>")
@example(ATTACK, "at 1.5s")
def test_parts_joined_are_the_text(first, second):
    parts = word_differences(first, second)
    assert ["".join(piece for piece, _ in side) for side in parts] == [first, second]
    assert all(not differs for side in word_differences(first, first) for _, differs in side)

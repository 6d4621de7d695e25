"""Tests how an answer is graded by its words."""

import pytest

from datamodules.vision_language.grading import grade


@pytest.mark.parametrize(
    ("right", "text", "exact", "f1"),
    [
        ("A red cube.", "a  red cube", 1, 1),
        ("yes", "no", 0, 0),
        ("a red cube", "a red ball", 0, 2 / 3),
        ("a red cube", "", 0, 0),
        ("3.5", "3.5.", 1, 1),
        ("3.5", "3", 0, 2 / 3),
        ("红色的猫", "红色的狗。", 0, 3 / 4),
        ("是。", "是", 1, 1),
        ("?!", "?!", 1, 1),
        ("?!", "...", 0, 0),
    ],
)
def test_an_answer_gets_its_exact_match_and_token_f1(right, text, exact, f1):
    points = grade(right, text)
    assert points["exact"] == (exact, 1)
    assert points["token_f1"][1] == 1
    assert points["token_f1"][0] == pytest.approx(f1)

"""Tests the type of an answer that a question file does not state."""

import pytest

from datamodules.document_qa.questions.answer_types import infer_answer_type


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ("3.5 A", "number"),
        ("5 thousand", "number"),
        ("< 5 V", "number"),
        ("up to 1.5 MPa", "number"),
        ("up to 5 kPa", "number"),
        ("lower than 5.5 V", "number"),
        ("10 mm or less", "number"),
        ("0.5 MPa以下", "number"),
        ("-10℃以上", "number"),
        ("50%以上", "number"),
        ("lower than 5", "relation"),  # 5 may be a part
        ("left of 5", "relation"),
        ("up", "relation"),
        ("17位于18的上方", "relation"),
        ("18岁以上", "string"),
        ("the left valve", "string"),
        ("not answerable", "unanswerable"),
    ],
)
def test_a_limit_is_a_number_and_no_position(answer, kind):
    assert infer_answer_type(answer) == kind

"""Tests which answers count as abstentions."""

import pytest

from datamodules.document_qa.grading.abstention import abstention_f1, is_abstention, is_unanswerable, says_unanswerable
from datamodules.document_qa.questions.answer_types import infer_answer_type
from datamodules.document_qa.types.question import UNANSWERABLE, Question


@pytest.mark.parametrize(
    "text",
    [
        UNANSWERABLE,
        "Not answerable.",
        "The document does not say.",
        "I don’t know",
        "unknown",
        "N/A",
        "None",
        "It cannot be determined from the document",
        "no such part is listed",
        "无法回答",
        "文中未提及该部件",
        "无",
        "信息不足",
    ],
)
def test_abstentions_are_recognized(text):
    assert is_abstention(text)


@pytest.mark.parametrize("text", ["3.5 A", "无线模块", "The valve is not open", "unknown device", "", "Notch", "右侧"])
def test_answers_are_not_taken_for_abstentions(text):
    assert not is_abstention(text)


def test_which_questions_have_no_answer():
    question = Question("a", "?", "d")
    assert is_unanswerable(question._replace(answer=UNANSWERABLE, answer_type="unanswerable"))
    assert is_unanswerable(question._replace(options=("a", UNANSWERABLE), answer=UNANSWERABLE, answer_type="choice"))
    assert is_unanswerable(question._replace(source="none"))
    assert not is_unanswerable(question._replace(answer="none", answer_type="string")), "how many alarms? none"


@pytest.mark.parametrize(
    "answer",
    [
        "No, it does not contain mercury",
        "No data link",
        "None",
        "none of the above",
        "N/A",
        "Unknown",
        "不能反转",
        "The valve cannot be determined to leak",
        "no such alarm",
        "没有",
        "",
    ],
)
def test_right_answers_that_sound_like_abstentions_are_answers(answer):
    assert not says_unanswerable(answer)
    assert infer_answer_type(answer) != "unanswerable"
    assert not is_unanswerable(Question("a", "?", "d", ("x", answer), answer, 1, "choice"))


@pytest.mark.parametrize(
    "answer",
    [
        UNANSWERABLE,
        "Not answerable.",
        "Unanswerable",
        "It cannot be determined from the document",
        "无法回答。",
        "文中未提及",
        "The document does not say.",
        "信息不足",
    ],
)
def test_reference_answers_that_state_unanswerable_are_recognized(answer):
    assert says_unanswerable(answer)
    assert is_abstention(answer)
    assert infer_answer_type(answer) == "unanswerable"


def test_abstention_f1_equals_that_by_hand():
    assert abstention_f1([True, True, False, False], [True, False, True, False]) == 0.5
    assert abstention_f1([True, False], [False, False]) == 0.0
    with pytest.raises(ValueError, match="no abstention and no unanswerable question, so there is no F1"):
        abstention_f1([False], [False])

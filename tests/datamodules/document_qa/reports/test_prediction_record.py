"""Tests the lines of predictions.jsonl."""

import json

import pytest

from datamodules.document_qa.batch import AnswerRecord, Evidence, ModelAnswer
from datamodules.document_qa.reports.prediction_record import parse_prediction_line, prediction_line, shares
from datamodules.document_qa.types.question import Question

CHOICE = Question("17", "which?", "a.pdf", ("x", "y", "z"), "y", 1, "choice", (2,), "table")
OPEN = Question("18", "of what?", "a.pdf", (), "steel")
EVIDENCE = Evidence(2, "table", (0.1, 0.2, 0.3, 0.4), 0.5)


def through_json(line):
    return json.loads(json.dumps(line))


def test_the_answer_to_a_choice_is_its_letter():
    record = AnswerRecord(3, ModelAnswer("", (-2.0, -1.0, -3.0), 0.665241), None, (2, 1), (1, 2), (EVIDENCE,))
    line = prediction_line(CHOICE, record)
    assert (line["id"], line["answer"], line["text"], line["page"]) == ("17", "B", "y", 2)
    assert line["options"]["B"] == pytest.approx(0.665241, abs=1e-6)
    assert sum(line["options"].values()) == pytest.approx(1, abs=1e-5)
    again = parse_prediction_line(3, through_json(line))
    assert again.whole.chosen == 1
    assert again.evidence == (EVIDENCE,)
    assert again.ranked == (2, 1)
    assert again.pages == (1, 2)
    assert shares(again.whole.options) == pytest.approx(shares(record.whole.options), abs=1e-5)


def test_an_open_answer_is_what_was_written():
    line = prediction_line(OPEN, AnswerRecord(0, ModelAnswer("iron", (), 0.25)))
    assert line["answer"] == "iron"
    assert line["page"] is None
    assert line["evidence"] is None
    assert "options" not in line
    assert parse_prediction_line(0, through_json(line)) == AnswerRecord(0, ModelAnswer("iron", (), 0.25))


def test_a_skipped_question_has_no_record():
    assert parse_prediction_line(0, {"id": "1", "answer": None, "why": "no such document"}) is None


def test_shares_of_very_unlikely_options_stay_finite():
    assert shares([-2000.0, -2000.0]) == [0.5, 0.5]

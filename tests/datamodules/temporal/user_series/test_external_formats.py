"""Tests records of ChatTS and TimeSeriesExam."""

import pytest

from datamodules.temporal.series.series_question import SeriesLimits
from datamodules.temporal.user_series.record_parser import RecordParser


def parse(tmp_path, record):
    return RecordParser(tmp_path, SeriesLimits(), answers=True).parse("a.jsonl, line 1", record)


def test_chatts_records_keep_their_measured_values(tmp_path):
    record = {
        "input": "Load: <ts><ts/> and flow: <ts><ts/>. Alike?",
        "timeseries": [[1, 2.5], [3, -4, 5]],
        "output": "No.",
    }
    found = parse(tmp_path, record)
    assert found.question == "Load: <series> and flow: <series>. Alike?"
    assert found.answer == "No."
    assert [series.values.tolist() for series in found.series] == [[1, 2.5], [3, -4, 5]]


def test_chatts_training_files_are_decoded(tmp_path):
    """Their series are centred, scaled and interleaved with a mask: measured = value * scaling - offset."""
    record = {
        "input": "A: [Value Offset: -10.5000|Value Scaling: 2.0000]<ts><ts/> What is it?",
        "timeseries": [[[0.25], [1.0], [-1.0], [1.0], [3.0], [1.0]]],
        "output": "a rise",
    }
    found = parse(tmp_path, record)
    assert found.question == "A: <series> What is it?"
    assert found.series[0].values.tolist() == [11.0, 8.5, 16.5]


def test_records_of_timeseriesexam_become_questions(tmp_path):
    shared = {
        "options": ["yes", "no", "no"],
        "answer": "no",
        "id": 12,
        "tid": 3,
        "category": "Causality Analysis",
        "difficulty": "easy",
        "question_hint": "",
        "relevant_concepts": [],
        "format_hint": "x",
    }
    record = parse(tmp_path, {"question": "Rising?", "ts": [1.0, -2.0], "ts1": None, "ts2": [], **shared})
    assert (record.options, record.answer, record.key, record.kind) == (("yes", "no"), "no", "12", "Causality Analysis")
    assert [(s.name, s.values.tolist()) for s in record.series] == [("ts", [1, -2])]
    two = parse(tmp_path, {"question": "Alike?", "ts1": [1.0], "ts2": [2.0, 3.0], **shared})
    assert [s.name for s in two.series] == ["ts1", "ts2"]


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (
            {"input": "<ts><ts/>", "timeseries": [[1], [2]]},
            "input: found <ts><ts/> 1 times, expected it once for each of 2",
        ),
        ({"input": 1, "timeseries": [[1]]}, "input: found 1, expected a text"),
        ({"input": "[Value Offset: 0|Value Scaling: 1]<ts><ts/>", "timeseries": [[1, 5]]}, "expected a mask of 1 or 0"),
        ({"question": "?", "ts": [1], "series": [1]}, "series: found beside ts"),
    ],
)
def test_invalid_records_are_refused_with_their_line(tmp_path, record, message):
    with pytest.raises(ValueError, match="a.jsonl, line 1: .*" + message):
        parse(tmp_path, {"output": "x", "answer": "x", **record})

"""Tests records of the user's files: their meaning, and refused keys."""

import json

import numpy as np
import pytest

from datamodules.temporal.series.series_question import SeriesLimits
from datamodules.temporal.user_series.record_parser import RecordParser

SMALL = SeriesLimits(steps=5, series=2, options=3)


def parse(tmp_path, record, answers=True, limits=SMALL):
    return RecordParser(tmp_path, limits, answers).parse("a.jsonl, line 3", record)


def values(question):
    return [series.values.tolist() for series in question.series]


def test_every_field_of_a_record_is_read(tmp_path):
    record = {
        "question": "Which is <series> or <series>?",
        "options": ["up", "down"],
        "answer": "B",
        "kind": "trend",
        "key": 7,
        "series": [
            {"name": "load", "unit": "kW", "values": [-1.5, 2], "step": 300},
            {"name": "flow", "values": [1, 3, 4], "times": [0, 10, 30]},
        ],
    }
    found = parse(tmp_path, record)
    assert (found.options, found.answer, found.kind, found.key) == (("up", "down"), "down", "trend", "7")
    load, flow = found.series
    assert load.same(load._replace(name="load", unit="kW", values=np.array([-1.5, 2]), step=300.0))
    assert flow.step == 10
    assert np.array_equal(flow.values, [1, 3, np.nan, 4], equal_nan=True)


@pytest.mark.parametrize(
    ("series", "expected"),
    [([1, 2], [[1, 2]]), ([[1], [2, 3]], [[1], [2, 3]]), ({"values": [4]}, [[4]]), ([{"values": [4]}], [[4]])],
)
def test_short_forms_of_series_are_accepted(tmp_path, series, expected):
    actual = parse(tmp_path, {"question": "?", "answer": 1.5, "series": series})
    assert values(actual) == expected
    assert actual.answer == "1.5"
    assert actual.series[0].name == "series 1"


def test_a_series_file_has_channels_units_and_irregular_stamps(tmp_path):
    (tmp_path / "plant.csv").write_text("time,flow (l/s),p [bar]\n0,1,-2\n10,,5\n30,4,6\n")
    both = parse(tmp_path, {"question": "?", "answer": "x", "series": "plant.csv"})
    assert [(s.name, s.unit, s.step) for s in both.series] == [("flow", "l/s", 10.0), ("p", "bar", 10.0)]
    np.testing.assert_array_equal(both.series[0].values, [1, np.nan, np.nan, 4])
    one = parse(
        tmp_path, {"question": "?", "answer": "x", "series": {"file": "plant.csv", "columns": ["p"], "step": 20}}
    )
    assert one.series[0].step == 20
    assert one.series[0].values.tolist() == [-2, 5, 6]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"question": " "}, "question: found ' ', expected a text"),
        ({"kind": "baseline"}, "kind: found 'baseline', which begins the names of the baselines' metrics; rename it"),
        ({"kind": "baseline/blind"}, "kind: found 'baseline/blind', which begins the names"),
        ({"question": "<series> <series>"}, "question: found <series> 2 times, expected it once for each of 1 series"),
        ({"series": []}, "series: found an empty list"),
        ({"series": [[1], [2], [3]]}, "series: found more than 2, expected at most that many; raise limits.series"),
        ({"series": [1, "a"]}, r"series.values\[1\]: found 'a', expected a number, or null for a gap"),
        ({"series": [1, True]}, r"series.values\[1\]: found True"),
        ({"series": [1] * 6}, "series.values: found 6 steps, expected at most 5"),
        ({"series": [1e101]}, r"series.values\[0\]: found 1e\+101, expected a number of at most 1e\+100"),
        ({"series": {"values": [1], "step": 0}}, "series.step: found 0, expected a number above 0"),
        ({"series": {"values": [1], "unlit": "K"}}, "series: found the key unlit, expected some of name, unit"),
        ({"series": {"values": [1, 2], "times": [1]}}, "series.times: found 1 stamps, expected one for each"),
        ({"series": {"values": [1, 2], "times": [1, None]}}, r"series.times\[1\]: found null, expected a number of"),
        ({"series": {"values": [1, 2], "times": [2, 1]}}, "series.times: stamp 2 is 1, after 2"),
        (
            {"series": {"values": [1, 2], "times": [0, 1714543200000]}},
            r"series.times\[1\]: found 1714543200000, which is no time of this era in seconds; divide the numbers by",
        ),
        ({"series": {"values": [1, 2], "times": ["x", "y"]}}, r"series.times\[0\]: found 'x', expected a date"),
        ({"series": "absent.csv"}, "series.file: found 'absent.csv', expected the path of a .csv file that exists"),
        ({"options": ["a"]}, "options: found .*, expected a list of 2 or more"),
        ({"options": ["a", "a"]}, "options: found .*, expected options that differ"),
        ({"options": ["a", "b", "c", "d"]}, "options: found 4, expected at most 3; raise limits.options"),
        ({"options": ["a", "b"], "answer": "z"}, "answer: found 'z', expected one of the options, or its letter"),
        ({"answer": None}, "answer: not found"),
        ({"answers": "x"}, "record: found the key answers, expected some of question, series, options"),
    ],
)
def test_invalid_fields_are_refused_with_location_and_key(tmp_path, change, message):
    record = {"question": "?", "series": [1, 2], "answer": "x"} | change
    with pytest.raises(ValueError, match="^a.jsonl, line 3: " + message):
        parse(tmp_path, json.loads(json.dumps(record)))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "time (s),x\n0,1\n1,2\n",
            r"plant.csv, line 1: found the column 'time \(s\)', expected stamps in .*; rename it",
        ),
        ("x,Date [UTC]\n1,0\n", r"plant.csv, line 1: found the column 'Date \[UTC\]', expected stamps in a column"),
        ("time,x\n0,1\n1700000000000,2\n", "plant.csv, line 3, time: found 1700000000000, which is no time .*time_ms"),
        ("time,x\n0,1\n1\n", "plant.csv, line 3: found 1 cells, expected 2"),
        ("time,x\n0,1\n1,a\n", "plant.csv, line 3, x: found 'a', expected a number or nothing"),
        ("time,x\n5,1\n1,2\n", "plant.csv, from line 2: stamp 2 is 1, after 5"),
        ("1,2\n2,3\n", "plant.csv, line 1: found the numbers 1, 2, expected a line of names"),
        ("time,x,x\n0,1,2\n", "plant.csv, line 1: found the columns time, x, x, expected names, each once"),
        ("date,x\n20240130,1\n20240131,2\n", "plant.csv, line 2, date: found '20240130', expected a date such as"),
        ("x\n", "plant.csv: found 1 lines, expected a line of names"),
        ("time\n1\n", "plant.csv, line 1: found no column of a channel"),
    ],
)
def test_a_series_file_is_refused_with_its_line(tmp_path, text, message):
    (tmp_path / "plant.csv").write_text(text)
    with pytest.raises(ValueError, match=message):
        parse(tmp_path, {"question": "?", "answer": "x", "series": "plant.csv"})


def test_a_channel_is_named_with_its_unit_where_the_name_alone_is_ambiguous(tmp_path):
    (tmp_path / "plant.csv").write_text("load (kW),load (%),p\n1,2,3\n4,5,6\n")
    record = {"question": "?", "answer": "x", "series": {"file": "plant.csv", "columns": ["p", "load (%)"]}}
    assert values(parse(tmp_path, record)) == [[3, 6], [2, 5]]
    record["series"]["columns"] = ["load"]
    with pytest.raises(ValueError, match=r"column 'load' is one of load \(kW\), load \(%\); give the name"):
        parse(tmp_path, record)


def test_a_question_to_predict_needs_no_answer(tmp_path):
    assert parse(tmp_path, {"question": "?", "series": [1]}, answers=False).answer is None

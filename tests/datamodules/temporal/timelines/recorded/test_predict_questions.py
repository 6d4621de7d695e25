"""Tests that questions about the user's timelines are read completely or refused with file and line."""

import json
import os

import numpy as np
import pytest

from datamodules.temporal.batch import SeriesLayout
from datamodules.temporal.timelines.recorded.predict_questions import TimelinePredictDataset

LAYOUT = SeriesLayout(4, "channel_patch", 4)
GOOD = {"question": "trend of sm?", "values": {"gpu_sm": [80, 75.5, None, 60]}}


def asked(tmp_path, *lines, position="question_first"):
    path = tmp_path / "questions.jsonl"
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return TimelinePredictDataset(path, LAYOUT, position)


def test_values_of_a_question_become_shares_of_capacities(tmp_path):
    source = asked(tmp_path, GOOD, "", {**GOOD, "values": {"cpu_cores": [3, 60], "cpu_mem_gb": [10, 20]}})
    assert len(source) == 2
    values, present = source.rows[0].curves
    np.testing.assert_allclose(values[:, 2], [0.8, 0.755, 0.0, 0.6], rtol=1e-6)
    assert present[:, 2].tolist() == [True, True, False, True]
    assert not present[:, [0, 1, 3]].any()
    assert source.item(0, 0).counts == (4,)  # one patch of each channel
    values, _ = source.rows[1].curves
    np.testing.assert_allclose(values[:, 0], [3 / 64, 60 / 64])  # the smallest machine that has 60 cores
    np.testing.assert_allclose(values[:, 1], [10 / 32, 20 / 32])
    series = source.collate([row.curves for row in source.rows])
    assert series.values.shape == (2, 4, 4)
    assert series.lengths.tolist() == [4, 2]


def test_the_series_stands_where_the_question_or_the_setting_puts_it(tmp_path):
    assert asked(tmp_path, GOOD).rows[0].question == "trend of sm?\n<series>"
    first = asked(tmp_path, GOOD, position="series_first")
    assert first.rows[0].question == "<series>\ntrend of sm?"
    own = asked(tmp_path, {**GOOD, "question": "this: <series> trend of sm?"})
    assert own.rows[0].question == "this: <series> trend of sm?"


def test_a_csv_file_beside_the_questions_is_read(tmp_path):
    (tmp_path / "machine.csv").write_text("time_ms,gpu_sm\n0,50\n100,\n200,25\n")
    source = asked(tmp_path, {"question": "q", "csv": "machine.csv", "capacities": {"gpu_sm": 50}})
    values, present = source.rows[0].curves
    assert values[:, 2].tolist() == [1.0, 0.0, 0.5]
    assert present[:, 2].tolist() == [True, False, True]


@pytest.mark.parametrize(
    ("line", "messages"),
    [
        ("{", "not JSON"),
        ("[]", "found list"),
        ({"question": " ", "values": {"gpu_sm": [1]}}, "question is ' '"),
        ({**GOOD, "question": "a \ud800"}, "not JSON (found '\\ud800', half of a surrogate pair"),
        ({"question": "q"}, "either csv, a file, or values"),
        ({**GOOD, "csv": "a.csv"}, "either csv, a file, or values"),
        ({**GOOD, "answer": "42"}, "found answer"),
        ({"question": "q", "csv": "absent.csv"}, "absent.csv"),
        ({"question": "q", "values": {"disk": [1]}}, "channels disk"),
        ({"question": "q", "values": {"gpu_sm": []}}, "of different lengths, or none"),
        ({"question": "q", "values": {"gpu_sm": [1], "gpu_mem_gb": [1, 2]}}, "of different lengths, or none"),
        ({"question": "q", "values": {"gpu_sm": ["much"]}}, "gpu_sm: expected numbers"),
        ({"question": "q", "values": {"gpu_sm": [101]}, "capacities": {"gpu_sm": 100}}, "found 101, expected 0 to 100"),
        ({"question": "q", "values": {"gpu_sm": [-1]}}, "found -1"),
        ({"question": "q", "values": [1, 2]}, "expected {channel: numbers}"),
        ({"question": "q", "values": {"gpu_sm": 5}}, "gpu_sm: found 5, expected a list of numbers"),
        ({"question": "q", "values": {"gpu_sm": "80"}}, "gpu_sm: found '80', expected a list of numbers"),
        ('{"question": "q", "values": {"gpu_sm": [80, Infinity]}}', "found Infinity, which JSON does not have"),
        ({**GOOD, "capacities": [100]}, "capacities is [100], expected {channel: number}"),
        ({**GOOD, "capacities": {"disk": 100}}, "capacities: found disk"),
        ({**GOOD, "capacities": {"gpu_sm": 0}}, "capacities: gpu_sm is 0, expected a number above 0"),
        ({**GOOD, "capacities": {"gpu_sm": "all"}}, "capacities: gpu_sm is 'all', expected a number above 0"),
    ],
)
def test_an_invalid_question_is_refused_with_its_line(tmp_path, line, messages):
    with pytest.raises(ValueError) as error:
        asked(tmp_path, GOOD, line)
    assert "questions.jsonl, line 2: " in str(error.value)
    assert messages in str(error.value)


def test_an_absent_or_empty_file_of_questions_is_refused(tmp_path):
    with pytest.raises(ValueError, match="absent.jsonl is not a file"):
        TimelinePredictDataset(tmp_path / "absent.jsonl", LAYOUT, "question_first")
    with pytest.raises(ValueError, match="found no line, expected a question"):
        asked(tmp_path, "", "")


def test_a_timeline_that_is_a_pipe_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "machine.csv")
    with pytest.raises(ValueError, match="line 1: .*machine.csv: found a pipe or a device, expected a file"):
        asked(tmp_path, {"question": "q", "csv": "machine.csv"})

"""Tests series without any number, in each format of the user's questions."""

import csv
import json

import pyarrow as pa
import pyarrow.parquet
import pytest

from datamodules.temporal.series.series_question import SeriesLimits
from datamodules.temporal.user_series.datamodule import read_series_questions

MEASURED, EMPTY = {"name": "load", "values": [1.0, None]}, {"name": "flow", "values": [None, None]}
FORMS = {"jsonl": "line {}", "json": "record {}", "csv": "line {}", "parquet": "row {}"}


def written(path, *series):
    """Return where the last record of a file is: a question about each of the lists of series."""
    records = [{"question": "?", "answer": "x", "series": each} for each in series]
    form = path.suffix[1:]
    if form == "jsonl":
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
    elif form == "json":
        path.write_text(json.dumps(records))
    elif form == "csv":
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerows([["question", "answer", "series"], *(["?", "x", json.dumps(each)] for each in series)])
    else:
        pa.parquet.write_table(pa.Table.from_pylist(records), path)
    return f"{path}, " + FORMS[form].format(len(records) + (form == "csv"))


@pytest.mark.parametrize("form", FORMS)
def test_a_series_of_gaps_is_counted_and_the_first_named(tmp_path, messages, form):
    where = written(tmp_path / f"a.{form}", [MEASURED], [MEASURED, EMPTY, EMPTY])
    assert len(read_series_questions(tmp_path / f"a.{form}", SeriesLimits(), answers=True)) == 2
    message = f"{where}: the series flow has no number, only gaps; of the 4 series of this file, 2 have none"
    assert messages == [message]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("series", "message"), [([EMPTY], "flow"), ([EMPTY, EMPTY], "any of 2 series"), ([{"values": [None]}], "series 1")]
)
def test_a_question_about_gaps_alone_is_refused(tmp_path, form, series, message):
    where = written(tmp_path / f"a.{form}", [MEASURED], series)
    with pytest.raises(ValueError) as raised:
        read_series_questions(tmp_path / f"a.{form}", SeriesLimits(), answers=True)
    assert str(raised.value) == f"{where}: series: found no number in {message}, expected one or more that is not null"


def test_an_empty_column_of_a_series_file_is_a_channel_without_measurements(tmp_path, messages):
    (tmp_path / "plant.csv").write_text("time,load,flow\n0,1,\n1,2,nan\n")
    record = {"question": "?", "answer": "x", "series": "plant.csv"}
    (tmp_path / "a.jsonl").write_text(json.dumps(record) + "\n")
    (question,) = read_series_questions(tmp_path / "a.jsonl", SeriesLimits(), answers=True)
    assert [series.is_measured for series in question.series] == [True, False]
    (message,) = messages
    assert message.startswith(f"{tmp_path / 'a.jsonl'}, line 1: the series flow has no number, only gaps; of the 2")

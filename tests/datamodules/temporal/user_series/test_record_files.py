"""Tests that JSONL, JSON, CSV and Parquet give the same records."""

import csv
import json

import pyarrow as pa
import pyarrow.parquet
import pytest

from datamodules.temporal.series.series_question import SeriesLimits
from datamodules.temporal.user_series.record_files import read_records
from datamodules.temporal.user_series.record_parser import RecordParser

RECORDS = [
    {
        "question": "Up?\nOr, down?",
        "options": ["up", "down"],
        "answer": "up",
        "kind": "trend",
        "series": [{"name": "a", "unit": "K", "values": [1.5, None, -2.0], "step": 10.0}],
    },
    {"question": 'Mean of "b"?', "answer": "3 K", "series": [{"name": "b", "unit": "", "values": [3.0], "step": None}]},
]


def write(path, form):
    if form == "jsonl":
        path.write_text("\n".join(map(json.dumps, RECORDS)) + "\n\n")
    elif form == "json":
        path.write_text(json.dumps(RECORDS))
    elif form == "csv":
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["question", "series", "options", "answer", "kind"])
            for record in RECORDS:
                options = "|".join(record.get("options", []))
                cells = [record["question"], json.dumps(record["series"]), options, record["answer"]]
                writer.writerow([*cells, record.get("kind", "")])
    else:
        pa.parquet.write_table(pa.Table.from_pylist(RECORDS), path)


def parsed(path):
    parser = RecordParser(path.parent, SeriesLimits(), answers=True)
    return [parser.parse(where, record) for where, record in read_records(path, 2**20)]


@pytest.mark.parametrize("form", ["jsonl", "json", "csv", "parquet"])
def test_all_formats_say_the_same(tmp_path, form):
    path = tmp_path / f"a.{form}"
    write(path, form)
    first, second = parsed(path)
    assert (first.question, first.options) == (RECORDS[0]["question"], ("up", "down"))
    assert (first.answer, first.kind) == ("up", "trend")
    assert (first.series[0].name, first.series[0].unit, first.series[0].step) == ("a", "K", 10.0)
    assert [None if value != value else value for value in first.series[0].values] == [1.5, None, -2.0]
    assert (second.question, second.options, second.answer, second.kind) == (RECORDS[1]["question"], (), "3 K", "")
    assert second.series[0].step is None
    assert second.where.startswith(str(path))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", '{"question": 1}\n{"question": NaN}\n', "a.jsonl, line 2: not JSON .found NaN"),
        ("a.jsonl", '{"a": 1, "a": 2}\n', "a.jsonl, line 1: not JSON .found the key 'a' twice"),
        ("a.jsonl", "", "a.jsonl: found no record"),
        ("a.jsonl", "x" * 200 + "\n", "a.jsonl, line 1: found 200 bytes, expected at most 100; raise limits.row_bytes"),
        ("a.json", '{"question": 1}', "a.json: found .*, which is not a list"),
        (
            "a.csv",
            "question,serie\n?,[1]\n",
            "a.csv, line 1: found the columns question, serie, expected question, series",
        ),
        ("a.csv", "question,series\n?\n", "a.csv, line 2: found 1 cells, expected 2"),
        ("a.csv", 'question,series\n?,"[1,"\n', "a.csv, line 2, series: not JSON"),
        ("a.csv", "question,series\n\0,[1]\n", "a.csv, line 2: found a NUL byte"),
        ("a.parquet", "PAR1xxxx", "a.parquet: not a Parquet file, or a corrupt one"),
        ("a.txt", "x", "a.txt: expected a file that ends in .jsonl"),
    ],
)
def test_invalid_records_are_refused_with_file_and_line(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=message):
        list(read_records(tmp_path / name, 100))


def test_the_csv_module_keeps_its_limit(tmp_path):
    before = csv.field_size_limit()
    (tmp_path / "a.csv").write_text("question,series\n?,[1]\n")
    assert len(list(read_records(tmp_path / "a.csv", 10**6))) == 1
    assert csv.field_size_limit() == before


def test_a_value_of_a_parquet_row_that_python_has_not_names_the_row(tmp_path):
    times = pa.array([[0], [1]], pa.list_(pa.timestamp("ns")))
    table = {"question": ["?", "?"], "series": [[1.0], [1.0]], "answer": ["a", "a"], "key": times}
    pa.parquet.write_table(pa.table(table), tmp_path / "a.parquet")
    with pytest.raises(ValueError, match=r"a.parquet, row 2: a value cannot be read: Nanosecond"):
        list(read_records(tmp_path / "a.parquet", 2**20))

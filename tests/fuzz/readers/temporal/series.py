"""The user's series and questions: JSON lines of records, tables of questions, and tables of series.

The references are plain_json and the csv module, with the rules of docs/temporal.md written as plain loops.
"""

import csv
import io
import json
import math
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

from tests.fuzz import plain_json
from tests.fuzz.mutations.records import line_record_mutation
from tests.fuzz.mutations.tables import table_mutation
from tests.fuzz.reader import Input, InvalidInput, Reader
from tests.fuzz.readers.temporal.series_records import KEYS, OPTIONS, SERIES, question
from tests.fuzz.readers.temporal.series_tables import STEPS, table

_CSV = "time,flow (l/s),p [bar]\n0,1,-2\n10,,5\n30,4,6\n"

_ROWS: list[dict[str, Any]] = [
    {"question": "Rising é?", "series": [1, None, -2.5], "options": ["yes", "no"], "answer": "B", "kind": "trend"},
    {
        "question": "<series> or <series>?",
        "answer": "12.5 kW",
        "key": 7,
        "series": [
            {"name": "load", "unit": "kW", "values": [3, 4], "step": 300},
            {"values": [1, 2, 5], "times": [0, 10, 30]},
        ],
    },
    {"question": "Pressure?", "series": {"file": "plant.csv", "columns": ["p"], "step": 20}, "answer": 6},
    {"input": "A: <ts><ts/>. What?", "timeseries": [[1, 2.5]], "output": "a rise"},
    {"question": "Alike?", "ts1": [1], "ts2": [2, 3], "options": ["yes", "no", "no"], "answer": "no", "category": "c"},
]


class SeriesQuestionLines(Reader):
    """Rows of (question, options, answer, kind, key, [(name, unit, step, values)])."""

    def seeds(self) -> Sequence[Input]:
        return [Input("questions.jsonl", "\n".join(json.dumps(row, ensure_ascii=False) for row in _ROWS).encode())]

    def surround(self, folder: Path) -> None:
        (folder / "plant.csv").write_text(_CSV)

    def restructure(self, random: Random, data: bytes) -> bytes:
        keys = ("name", "unit", "values", "step", "times", "file", "columns", "ts", "ts1", "input", "timeseries")
        return line_record_mutation((*sorted(KEYS), *keys, "output"))(random, data)

    def read(self, path: Path) -> Any:
        from datamodules.temporal.batch import SeriesLayout
        from datamodules.temporal.series.dataset import PromptStyle, SeriesChats
        from datamodules.temporal.series.series_question import SeriesLimits
        from datamodules.temporal.user_series.datamodule import QuestionList
        from datamodules.temporal.user_series.record_files import read_records
        from datamodules.temporal.user_series.record_parser import RecordParser

        parser = RecordParser(path.parent, SeriesLimits(STEPS, SERIES, OPTIONS), answers=True)
        questions = [parser.parse(where, record) for where, record in read_records(path, 2**24)]
        chats = SeriesChats(QuestionList(questions), SeriesLayout(1, "channel_patch", 4), PromptStyle())
        for index in range(len(chats)):
            item = chats.item(0, index)
            assert item.messages[0]["content"].count("<series>") == len(item.counts)
            assert all(item.counts)
            chats.collate([item.encoder_input])
        return [
            (
                q.question,
                list(q.options),
                q.answer,
                q.kind,
                q.key,
                [(s.name, s.unit, s.step, _listed(s.values)) for s in q.series],
            )
            for q in questions
        ]

    def reference(self, path: Path) -> Any:
        lines = plain_json.lines(b"\n".join(path.read_bytes().removeprefix(b"\xef\xbb\xbf").splitlines()))
        return [question(record, path.parent) for _, record in lines]

    def agrees(self, actual: Any, expected: Any) -> bool:
        return len(actual) == len(expected) and all(
            own[:5] == other[:5] and len(own[5]) == len(other[5]) and all(map(_same, own[5], other[5]))
            for own, other in zip(actual, expected, strict=True)
        )


class SeriesQuestionTable(SeriesQuestionLines):
    """The same from a CSV file, whose cells hold JSON."""

    def seeds(self) -> Sequence[Input]:
        file = io.StringIO(newline="")
        writer = csv.writer(file)
        writer.writerow(sorted(KEYS))
        for row in _ROWS[:3]:
            cells = {key: json.dumps(value) if isinstance(value, dict | list) else value for key, value in row.items()}
            writer.writerow([cells.get(key, "") for key in sorted(KEYS)])
        return [Input("questions.csv", file.getvalue().encode())]

    def restructure(self, random: Random, data: bytes) -> bytes:
        return table_mutation(b",")(random, data)

    def reference(self, path: Path) -> Any:
        data = path.read_bytes()
        if b"\0" in data:
            raise InvalidInput("it has a NUL byte")
        try:
            rows = [row for row in csv.reader(io.StringIO(data.decode("utf-8-sig"), newline=""), strict=True)]
        except (UnicodeDecodeError, csv.Error) as error:
            raise InvalidInput(str(error)) from error
        rows = [row for row in rows if any(map(str.strip, row))]
        header = [cell.strip() for cell in rows[0]] if rows else []
        if len(rows) < 2 or len(set(header)) < len(header) or not {"question", "series"} <= set(header) <= KEYS:
            raise InvalidInput(f"the header is {header}"[:200])
        found = []
        for row in rows[1:]:
            if len(row) != len(header):
                raise InvalidInput("a row has other cells")
            record: dict[str, Any] = {key: cell.strip() for key, cell in zip(header, row, strict=True) if cell.strip()}
            for key in ("series", "options"):
                if record.get(key, "")[:1] in ("[", "{") and key in record:
                    record[key] = plain_json.parse(record[key])
                elif key == "options" and key in record:
                    record[key] = [option.strip() for option in record[key].split("|")]
            found.append(question(record, path.parent))
        return found


class SeriesTables(Reader):
    """Series of a CSV file: (name, unit, step, values) of each channel."""

    def seeds(self) -> Sequence[Input]:
        moments = "date,a\n2024-05-01T00:00,1\n2024-05-01T01:00,-2.5\n2024-05-01T03:00Z,3\n".replace("Z", "")
        return [
            Input("plant.csv", _CSV.encode()),
            Input("dates.csv", moments.encode()),
            Input("plain.csv", b"a (m),b\n1,2\n,3\n"),
        ]

    def restructure(self, random: Random, data: bytes) -> bytes:
        return table_mutation(b",")(random, data)

    def read(self, path: Path) -> Any:
        from datamodules.temporal.series.series_question import SeriesLimits
        from datamodules.temporal.user_series.series_files import SeriesFiles

        found = SeriesFiles(path.parent, SeriesLimits(STEPS)).read("series.file", path.name, None, None)
        return [(s.name, s.unit, s.step, _listed(s.values)) for s in found]

    def reference(self, path: Path) -> Any:
        return table(path.read_bytes(), None, None)

    def agrees(self, actual: Any, expected: Any) -> bool:
        return len(actual) == len(expected) and all(map(_same, actual, expected))


READERS = {"series": SeriesQuestionLines, "series_csv": SeriesQuestionTable, "series_tables": SeriesTables}


def _listed(values: Any) -> list[float | None]:
    return [None if math.isnan(value) else float(value) for value in values]


def _same(actual: Sequence[Any], expected: Sequence[Any]) -> bool:
    (name, unit, step, values), (other_name, other_unit, other_step, other_values) = actual, expected
    return (name, unit, step, len(values)) == (other_name, other_unit, other_step, len(other_values)) and all(
        own is other if own is None or other is None else math.isclose(own, other, rel_tol=1e-9, abs_tol=1e-290)
        for own, other in zip(values, other_values, strict=True)
    )

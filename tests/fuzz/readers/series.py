"""The user's series and questions: JSON lines of records, tables of questions, and tables of series.

The references are plain_json and the csv module, with the rules of docs/temporal.md written as plain loops.
"""

import csv
import io
import json
import math
import re
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from random import Random
from typing import Any

from tests.fuzz import plain_json
from tests.fuzz.mutations.records import line_record_mutation
from tests.fuzz.mutations.tables import table_mutation
from tests.fuzz.reader import Input, InvalidInput, Reader, Unknown

_KEYS = {"question", "series", "options", "answer", "kind", "key"}
_STEPS, _SERIES, _OPTIONS = 200, 4, 5  # limits
_TIMES = {"time": 1.0, "timestamp": 1.0, "date": 1.0, "datetime": 1.0, "time_s": 1.0, "time_ms": 0.001}
_CSV = "time,flow (l/s),p [bar]\n0,1,-2\n10,,5\n30,4,6\n"
_CELL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)

_ROWS: list[dict[str, Any]] = [
    {"question": "Rising é?", "series": [1, None, -2.5], "options": ["yes", "no"], "answer": "B", "kind": "trend"},
    {"question": "<series> or <series>?", "answer": "12.5 kW", "key": 7,
     "series": [{"name": "load", "unit": "kW", "values": [3, 4], "step": 300},
                {"values": [1, 2, 5], "times": [0, 10, 30]}]},
    {"question": "Pressure?", "series": {"file": "plant.csv", "columns": ["p"], "step": 20}, "answer": 6},
    {"input": "A: <ts><ts/>. What?", "timeseries": [[1, 2.5]], "output": "a rise"},
    {"question": "Alike?", "ts1": [1], "ts2": [2, 3], "options": ["yes", "no", "no"], "answer": "no", "category": "c"},
]  # fmt: skip


class SeriesQuestionLines(Reader):
    """Rows of (question, options, answer, kind, key, [(name, unit, step, values)])."""

    def seeds(self) -> Sequence[Input]:
        return [Input("questions.jsonl", "\n".join(json.dumps(row, ensure_ascii=False) for row in _ROWS).encode())]

    def surround(self, folder: Path) -> None:
        (folder / "plant.csv").write_text(_CSV)

    def restructure(self, random: Random, data: bytes) -> bytes:
        keys = (
            "name",
            "unit",
            "values",
            "step",
            "times",
            "file",
            "columns",
            "ts",
            "ts1",
            "input",
            "timeseries",
            "output",
        )
        return line_record_mutation((*sorted(_KEYS), *keys))(random, data)

    def read(self, path: Path) -> Any:
        from datamodules.temporal.batch import SeriesLayout
        from datamodules.temporal.series.dataset import PromptStyle, SeriesChats
        from datamodules.temporal.series.question import SeriesLimits
        from datamodules.temporal.user_series.datamodule import QuestionList
        from datamodules.temporal.user_series.file_formats import read_records
        from datamodules.temporal.user_series.records import RecordParser

        parser = RecordParser(path.parent, SeriesLimits(_STEPS, _SERIES, _OPTIONS), answers=True)
        questions = [parser.parse(where, record) for where, record in read_records(path, 2**24)]
        chats = SeriesChats(QuestionList(questions), SeriesLayout(1, "channel_patch", 4), PromptStyle())
        for index in range(len(chats)):
            item = chats.item(0, index)
            assert item.messages[0]["content"].count("<series>") == len(item.counts) and all(item.counts)
            chats.collate([item.modality])
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
        return [_question(record, path.parent) for _, record in lines]

    def agrees(self, found: Any, expected: Any) -> bool:
        return len(found) == len(expected) and all(
            own[:5] == other[:5] and len(own[5]) == len(other[5]) and all(map(_same, own[5], other[5]))
            for own, other in zip(found, expected, strict=True)
        )


class SeriesQuestionTable(SeriesQuestionLines):
    """The same from a CSV file, whose cells hold JSON."""

    def seeds(self) -> Sequence[Input]:
        file = io.StringIO(newline="")
        writer = csv.writer(file)
        writer.writerow(sorted(_KEYS))
        for row in _ROWS[:3]:
            cells = {key: json.dumps(value) if isinstance(value, dict | list) else value for key, value in row.items()}
            writer.writerow([cells.get(key, "") for key in sorted(_KEYS)])
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
        if len(rows) < 2 or len(set(header)) < len(header) or not {"question", "series"} <= set(header) <= _KEYS:
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
            found.append(_question(record, path.parent))
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
        from datamodules.temporal.series.question import SeriesLimits
        from datamodules.temporal.user_series.series_files import SeriesFiles

        found = SeriesFiles(path.parent, SeriesLimits(_STEPS)).read("series.file", path.name, None, None)
        return [(s.name, s.unit, s.step, _listed(s.values)) for s in found]

    def reference(self, path: Path) -> Any:
        return _table(path.read_bytes(), None, None)

    def agrees(self, found: Any, expected: Any) -> bool:
        return len(found) == len(expected) and all(map(_same, found, expected))


READERS = {"series": SeriesQuestionLines, "series_csv": SeriesQuestionTable, "series_tables": SeriesTables}


def _question(record: Any, folder: Path) -> tuple[Any, ...]:
    if not isinstance(record, dict):
        raise InvalidInput("a record is no object")
    record = {key: value for key, value in record.items() if value is not None}
    record = _converted(record)
    if not set(record) <= _KEYS or not _is_text(record.get("question")) or "series" not in record:
        raise InvalidInput("a record has other keys, or lacks question or series")
    series = _all_series(record["series"], folder)
    if record["question"].count("<series>") not in (0, len(series)):
        raise InvalidInput("the markers are not those of the series")
    options, answer = record.get("options", []), record.get("answer")
    if not isinstance(options, list) or len(options) == 1 or len(options) > _OPTIONS:
        raise InvalidInput("options is no list of two or more")
    options = [_scalar(option) for option in options]
    if len(set(options)) < len(options) or answer is None:
        raise InvalidInput("options repeat, or there is no answer")
    answer = _scalar(answer)
    if options and answer not in options:
        letter = re.fullmatch(r"\(?([A-Za-z])[).:]?", answer)
        place = ord(letter[1].upper()) - ord("A") if letter else len(options)
        if place >= len(options):
            raise InvalidInput("the answer is no option")
        answer = options[place]
    kind = record.get("kind", "")
    return record["question"], options, answer, _line(kind), _scalar(record["key"]) if "key" in record else "", series


def _converted(record: dict[str, Any]) -> dict[str, Any]:
    if "input" in record and "timeseries" in record:
        text, series = record["input"], record["timeseries"]
        if not isinstance(text, str) or not isinstance(series, list):
            raise InvalidInput("input is no text, or timeseries no list")
        if "[Value Offset" in text:
            raise Unknown("encoded series of ChatTS")
        series = series if not series or isinstance(series[0], list) else [series]
        if text.count("<ts><ts/>") != len(series) or not all(isinstance(one, list) for one in series):
            raise InvalidInput("the places are not those of the series")
        flat = [[v[0] if isinstance(v, list) and len(v) == 1 else v for v in one] for one in series]
        kept = {key: record[key] for key in ("key", "kind") if key in record}
        answer = {"answer": record["output"]} if "output" in record else {}
        return {"question": text.replace("<ts><ts/>", "<series>"), "series": flat, **answer, **kept}
    if "question" in record and {"ts", "ts1", "ts2"} & set(record):
        if "series" in record:
            raise InvalidInput("series beside ts")
        series = [
            {"name": key, "values": record[key]} for key in ("ts", "ts1", "ts2") if record.get(key) not in (None, [])
        ]
        options = record.get("options", [])
        if isinstance(options, list):
            options = [option for place, option in enumerate(options) if option not in options[:place]]
        found = {key: record[key] for key in ("question", "answer") if key in record} | {
            "series": series,
            "options": options,
        }
        for name, keys in {"key": ("key", "id"), "kind": ("kind", "category")}.items():
            found |= next(({name: record[key]} for key in keys if key in record), {})
        return found
    return record


def _all_series(found: Any, folder: Path) -> list[tuple[Any, ...]]:
    entries = found if isinstance(found, list) else [found]
    if isinstance(found, list) and found and not isinstance(found[0], list | dict | str):
        entries = [found]
    series: list[tuple[Any, ...]] = []
    for place, entry in enumerate(entries):
        if isinstance(entry, str) or (isinstance(entry, dict) and "file" in entry):
            fields = {"file": entry} if isinstance(entry, str) else entry
            if not set(fields) <= {"file", "columns", "step"} or not isinstance(fields["file"], str):
                raise InvalidInput("a file has other keys")
            path = folder / fields["file"] if "\0" not in fields["file"] else folder / "absent"
            if path.suffix.lower() != ".csv" or not path.is_file():
                raise InvalidInput("the file does not exist")
            if path.resolve() != (folder / "plant.csv").resolve():
                raise Unknown("another file of this machine")
            columns = fields.get("columns")
            if columns is not None and not (
                isinstance(columns, list) and columns and all(isinstance(c, str) for c in columns)
            ):
                raise InvalidInput("columns is no list of names")
            series += _table(path.read_bytes(), columns, _step(fields.get("step")))
        else:
            series.append(_series(entry, place))
    if not 0 < len(series) <= _SERIES:
        raise InvalidInput("there is no series, or too many")
    return series


def _series(entry: Any, place: int) -> tuple[Any, ...]:
    fields = {"values": entry} if isinstance(entry, list) else entry
    if not isinstance(fields, dict) or not set(fields) <= {"name", "unit", "values", "step", "times"}:
        raise InvalidInput("a series is no list and no object of its keys")
    name, unit = (_line("" if fields.get(key) is None else fields[key]) for key in ("name", "unit"))
    if "<series>" in name + unit:
        raise InvalidInput("a name has the marker")
    values, step, times = _values(fields.get("values")), _step(fields.get("step")), fields.get("times")
    if times is not None:
        stamps = _stamps(times, 1.0)
        if len(stamps) != len(values):
            raise InvalidInput("stamps and values differ in number")
        values, step = _resampled(stamps, values, step)
    if len(values) > _STEPS:
        raise InvalidInput("a series is too long")
    return name or f"series {place + 1}", unit, step, values


def _table(data: bytes, columns: list[str] | None, step: float | None) -> list[tuple[Any, ...]]:
    rows = []
    for line in data.removeprefix(b"\xef\xbb\xbf").splitlines():
        if not line.strip():
            continue
        try:
            [cells] = csv.reader([line.decode()], strict=True)
        except (UnicodeDecodeError, csv.Error, ValueError) as error:
            raise InvalidInput(str(error)) from error
        rows.append([cell.strip() for cell in cells])
    header = rows[0] if rows else []
    if len(rows) < 2 or len(set(header)) < len(header) or any(len(row) != len(header) for row in rows):
        raise InvalidInput("rows differ in length, or names repeat")
    if any(not name or not name.isprintable() or "<series>" in name for name in header):
        raise InvalidInput("a name is empty")
    time = next((place for place, name in enumerate(header) if name.lower() in _TIMES), None)
    channels = []
    for place, name in enumerate(header):
        found = re.fullmatch(r"(.*\S)\s*[(\[]([^()\[\]]*)[)\]]", name)
        if place != time:
            channels.append((place, *((found[1], found[2].strip()) if found else (name, ""))))
    if columns is not None:
        named = [[one for one in channels if column in (one[1], header[one[0]])] for column in columns]
        if not all(named):
            raise InvalidInput("a column is missing")
        channels = [one[0] for one in named]
    if not channels:
        raise InvalidInput("there is no channel")
    stamps = None
    if time is not None:
        cells: list[Any] = [row[time] for row in rows[1:]]
        if _is_number(cells[0]):
            cells = [_cell(cell) for cell in cells]
        stamps = _stamps(cells, _TIMES[header[time].lower()])
    series = []
    for place, name, unit in channels:
        values: list[float | None] = [_cell(row[place]) for row in rows[1:]]
        if any(value is not None and abs(value) > 1e100 for value in values):
            raise InvalidInput("a value is too large")
        length: float | None = step
        if stamps is not None:
            values, length = _resampled(stamps, values, step)
        if len(values) > _STEPS:
            raise InvalidInput("a series is too long")
        series.append((name, unit, length, values))
    return series


def _resampled(
    stamps: list[float], values: Sequence[float | None], step: float | None
) -> tuple[list[float | None], float | None]:
    distances = [later - earlier for earlier, later in zip(stamps, stamps[1:], strict=False)]
    if any(distance < 0 for distance in distances):
        raise InvalidInput("stamps go down")
    apart = sorted(distance for distance in distances if distance)
    if step is None:
        step = apart[(len(apart) - 1) // 2] if apart else None
    if step is None:
        kept = [value for value in values if value is not None]
        return [math.fsum(kept) / len(kept) if kept else None], None
    if (stamps[-1] - stamps[0]) / step >= _STEPS - 0.5:
        raise InvalidInput("stamps span too many steps")
    places = [math.floor((stamp - stamps[0]) / step + 0.5) for stamp in stamps]
    cells: list[list[float]] = [[] for _ in range(places[-1] + 1)]
    for place, value in zip(places, values, strict=True):
        if value is not None:
            cells[place].append(value)
    return [math.fsum(cell) / len(cell) if cell else None for cell in cells], step


def _values(found: Any) -> list[float | None]:
    if not isinstance(found, list) or not found:
        raise InvalidInput("values is no list")
    for value in found:
        if value is not None and (type(value) not in (int, float) or not abs(value) <= 1e100):
            raise InvalidInput("a value is no number")
    return [None if value is None else float(value) for value in found]


def _stamps(found: Any, seconds: float) -> list[float]:
    if not isinstance(found, list) or not found:
        raise InvalidInput("times is no list")
    if isinstance(found[0], str):
        try:
            moments = [datetime.fromisoformat(stamp.strip().replace("Z", "+00:00")) for stamp in found]
        except (ValueError, AttributeError) as error:
            raise InvalidInput(str(error)[:100]) from error
        return [(m if m.tzinfo else m.replace(tzinfo=timezone.utc)).timestamp() for m in moments]
    if any(type(stamp) not in (int, float) or not abs(stamp * seconds) <= 1e15 for stamp in found):
        raise InvalidInput("a stamp is no number")
    return [float(stamp) * seconds for stamp in found]


def _step(found: Any) -> float | None:
    if found is None:
        return None
    if type(found) not in (int, float) or not 0 < found <= 1e15:
        raise InvalidInput("step is no number above 0")
    return float(found)


def _cell(cell: str) -> float | None:
    if not cell or cell.lower() in ("nan", "null"):
        return None
    if not _is_number(cell) or not math.isfinite(float(cell)):
        raise InvalidInput(f"it has the cell {cell[:40]!r}")
    return float(cell)


def _is_number(cell: str) -> bool:
    return _CELL.fullmatch(cell) is not None


def _is_text(found: Any) -> bool:
    return isinstance(found, str) and bool(found.strip()) and len(found) <= 100_000


def _line(found: Any) -> str:
    if not isinstance(found, str) or not found.isprintable() or len(found) > 100_000:
        raise InvalidInput("a label is no line of text")
    return found.strip()


def _scalar(found: Any) -> str:
    if type(found) in (int, float) and math.isfinite(found):
        return str(found)
    if not _is_text(found):
        raise InvalidInput("it is neither text nor number")
    return str(found).strip()


def _listed(values: Any) -> list[float | None]:
    return [None if math.isnan(value) else float(value) for value in values]


def _same(found: Sequence[Any], expected: Sequence[Any]) -> bool:
    (name, unit, step, values), (other_name, other_unit, other_step, other_values) = found, expected
    return (name, unit, step, len(values)) == (other_name, other_unit, other_step, len(other_values)) and all(
        own is other if own is None or other is None else math.isclose(own, other, rel_tol=1e-9, abs_tol=1e-290)
        for own, other in zip(values, other_values, strict=True)
    )

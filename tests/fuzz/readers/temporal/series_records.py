"""A record of series and a question, read by plain rules: the reference of `SeriesQuestionLines`."""

import math
import re
from pathlib import Path
from typing import Any

from tests.fuzz.reader import InvalidInput, Unknown
from tests.fuzz.readers.temporal.series_tables import STEPS, resampled, stamps_of, step_of, table

KEYS = {"question", "series", "options", "answer", "kind", "key"}
SERIES, OPTIONS = 4, 5
"""Limits of the readers that are tested."""


def question(record: Any, folder: Path) -> tuple[Any, ...]:
    if not isinstance(record, dict):
        raise InvalidInput("a record is no object")
    record = {key: value for key, value in record.items() if value is not None}
    record = _converted(record)
    if not set(record) <= KEYS or not _is_text(record.get("question")) or "series" not in record:
        raise InvalidInput("a record has other keys, or lacks question or series")
    series = _all_series(record["series"], folder)
    if record["question"].count("<series>") not in (0, len(series)):
        raise InvalidInput("the markers are not those of the series")
    options, answer = record.get("options", []), record.get("answer")
    if not isinstance(options, list) or len(options) == 1 or len(options) > OPTIONS:
        raise InvalidInput("options is no list of two or more")
    options = [_scalar(option) for option in options]
    if len(set(options)) < len(options) or answer is None:
        raise InvalidInput("options repeat, or there is no answer")
    answer = _scalar(answer)
    if options and answer not in options:
        letter = re.fullmatch(r"\(?([A-Za-z])[).:]?", answer)
        index = ord(letter[1].upper()) - ord("A") if letter else len(options)
        if index >= len(options):
            raise InvalidInput("the answer is no option")
        answer = options[index]
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
        if text.count("<ts><ts/>") != len(series) or not all(isinstance(values, list) for values in series):
            raise InvalidInput("the placeholders are not those of the series")
        flat = [[v[0] if isinstance(v, list) and len(v) == 1 else v for v in values] for values in series]
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
            options = [option for index, option in enumerate(options) if option not in options[:index]]
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
    for index, entry in enumerate(entries):
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
            series += table(path.read_bytes(), columns, step_of(fields.get("step")))
        else:
            series.append(_series(entry, index))
    if not 0 < len(series) <= SERIES:
        raise InvalidInput("there is no series, or too many")
    return series


def _series(entry: Any, index: int) -> tuple[Any, ...]:
    fields = {"values": entry} if isinstance(entry, list) else entry
    if not isinstance(fields, dict) or not set(fields) <= {"name", "unit", "values", "step", "times"}:
        raise InvalidInput("a series is no list and no object of its keys")
    name, unit = (_line("" if fields.get(key) is None else fields[key]) for key in ("name", "unit"))
    if "<series>" in name + unit:
        raise InvalidInput("a name has the marker")
    values, step, times = _values(fields.get("values")), step_of(fields.get("step")), fields.get("times")
    if times is not None:
        stamps = stamps_of(times, 1.0)
        if len(stamps) != len(values):
            raise InvalidInput("stamps and values differ in number")
        values, step = resampled(stamps, values, step)
    if len(values) > STEPS:
        raise InvalidInput("a series is too long")
    return name or f"series {index + 1}", unit, step, values


def _values(found: Any) -> list[float | None]:
    if not isinstance(found, list) or not found:
        raise InvalidInput("values is no list")
    for value in found:
        if value is not None and (type(value) not in (int, float) or not abs(value) <= 1e100):
            raise InvalidInput("a value is no number")
    return [None if value is None else float(value) for value in found]


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

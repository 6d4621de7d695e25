"""Converts records of other projects to the schema of `record_parser`, distinguished by their keys.

ChatTS (NetManAIOps/ChatTS): `input` with `<ts><ts/>` at each series, `timeseries`, `output`. Its published training
files hold series that are encoded already: `[Value Offset: o|Value Scaling: s]` before the place, and a 1.0 after each
value as its mask. The measured values are `value * s - o`.

TimeSeriesExam (moment-timeseries-foundation-model/TimeSeriesExam, AutonLab/TimeSeriesExam1): `question`, `options`,
`answer`, and the series `ts`, or `ts1` and `ts2`. Its other keys (`tid`, `difficulty`, hints, concepts) are not used.
"""

import re
from collections.abc import Sequence
from typing import Any

from datamodules.temporal.series_marker import PLACEHOLDER
from engine.io.json_records import describe_value
from engine.number_check import is_number

_PLACE = "<ts><ts/>"
_ENCODED = re.compile(r"\[Value Offset: (-?[\d.]{1,40})\|Value Scaling: ([\d.]{1,40})\]\s*$")
_EXAM = ("ts", "ts1", "ts2")


def convert_record(record: dict[str, Any]) -> dict[str, Any]:
    """Return a record in the schema of `record_parser`; a record of that schema is returned as it is.

    Raises:
        ValueError: a record of another project is invalid; the message names the key.
    """
    if "input" in record and "timeseries" in record:
        return _convert_chatts(record)
    if "question" in record and any(key in record for key in _EXAM):
        return _convert_exam(record)
    return record


def _convert_chatts(record: dict[str, Any]) -> dict[str, Any]:
    text, series = record["input"], record["timeseries"]
    if not isinstance(text, str):
        raise ValueError(f"input: found {describe_value(text)}, expected a text")
    if not isinstance(series, list):
        raise ValueError(f"timeseries: found {describe_value(series)}, expected a list of lists of numbers")
    # A record with a single series may have it without an outer list.
    if series and not isinstance(series[0], list):
        series = [series]
    pieces = text.split(_PLACE)
    if len(pieces) != len(series) + 1:
        raise ValueError(
            f"input: found {_PLACE} {len(pieces) - 1} times, expected it once for each of {len(series)} series"
        )
    found: list[Any] = []
    for index, values in enumerate(series):
        encoded = _ENCODED.search(pieces[index])
        column = _flat(f"timeseries[{index}]", values)
        if encoded:
            # Offset and scaling go, because the prompt states its own.
            pieces[index] = pieces[index][: encoded.start()]
            column = _decode(f"timeseries[{index}]", column, *map(_float, encoded.groups()))
        found.append(column)
    converted = {"question": PLACEHOLDER.join(pieces), "series": found, "answer": record.get("output")}
    return converted | {key: record[key] for key in ("key", "kind") if key in record}


def _flat(key: str, values: object) -> list[Any]:
    """Return the values of a series, which some files write as lists of one number each."""
    if not isinstance(values, list):
        raise ValueError(f"{key}: found {describe_value(values)}, expected a list of numbers")
    return [value[0] if isinstance(value, list) and len(value) == 1 else value for value in values]


def _decode(key: str, column: Sequence[Any], offset: float, scale: float) -> list[Any]:
    if len(column) % 2 or any(mask not in (0, 1) for mask in column[1::2]):
        raise ValueError(
            f"{key}: found {len(column)} numbers, expected a mask of 1 or 0 after each value, as in ChatTS"
        )
    values = column[::2]
    if not all(map(is_number, values)):
        raise ValueError(f"{key}: found a value that is not a number")
    return [value * scale - offset if mask else None for value, mask in zip(values, column[1::2], strict=True)]


def _float(digits: str) -> float:
    try:
        return float(digits)
    except ValueError as error:
        raise ValueError(f"input: found {digits!r} as offset or scaling, expected a number") from error


def _convert_exam(record: dict[str, Any]) -> dict[str, Any]:
    if "series" in record:
        raise ValueError("series: found beside ts, ts1 or ts2; expected one of these forms")
    # Files of one table for all questions have empty lists in the columns that a question does not use.
    series = [{"name": key, "values": record[key]} for key in _EXAM if record.get(key) not in (None, [])]
    converted: dict[str, Any] = {key: record[key] for key in ("question", "answer") if key in record}
    options = record.get("options")
    if isinstance(options, list):  # a generated list may repeat an option
        options = [option for index, option in enumerate(options) if option not in options[:index]]
    names = {"key": ("key", "id"), "kind": ("kind", "category")}
    for name, keys in names.items():
        converted |= next(({name: record[key]} for key in keys if key in record), {})  # 0 is an id as well
    return converted | {"series": series, "options": options}

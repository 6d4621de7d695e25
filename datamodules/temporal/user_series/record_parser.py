"""Parses records of series and questions, the schema of the user's own files.

    {"question": "Does the load follow the temperature?", "options": ["yes", "no"], "answer": "yes",
     "series": [{"name": "load", "unit": "kW", "values": [3.2, null, -1], "step": 300},
                {"name": "temperature", "unit": "°C", "values": [21, 22], "times": [0, 3600]},
                {"file": "plant.csv", "columns": ["pressure (bar)"]}]}

A series may be a plain list of numbers, and `series` a single series. `kind` is a category and `key` a name of the
question; both are optional.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from datamodules.temporal.series.grading import chosen_option
from datamodules.temporal.series.resampling import LATEST, resample
from datamodules.temporal.series.series_question import InputSeries, SeriesLimits, SeriesQuestion
from datamodules.temporal.series_marker import PLACEHOLDER
from datamodules.temporal.user_series.external_formats import convert_record
from datamodules.temporal.user_series.record_fields import (
    check_keys,
    label,
    measurements,
    number,
    scalar_text,
    stamps,
    text,
)
from datamodules.temporal.user_series.series_files import SeriesFiles
from engine.io.json_records import describe_names, describe_value

FIELDS = ("question", "series", "options", "answer", "kind", "key")
_SERIES = ("name", "unit", "values", "step", "times")
_FILE = ("file", "columns", "step")


class RecordParser:
    """Parses records to questions.

    Args:
        folder: folder that the names of series files are relative to.
        limits: largest sizes.
        answers: whether a question needs a reference answer.
    """

    def __init__(self, folder: Path, limits: SeriesLimits, answers: bool) -> None:
        self._limits, self._answers = limits, answers
        self._files = SeriesFiles(folder, limits)

    def parse(self, where: str, record: object) -> SeriesQuestion:
        """Return the question of a record, in this schema or a schema that `external_formats` converts.

        Args:
            where: file and line or row.
            record: value of the line.

        Raises:
            ValueError: the record is invalid; the message names `where` and the key.
            OSError: a series file cannot be read.
        """
        try:
            return self._parse(where, record)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from error

    def _parse(self, where: str, record: object) -> SeriesQuestion:
        if not isinstance(record, dict):
            raise ValueError(f"found {describe_value(record)}, expected an object with question and series")
        # A null is a missing key, as in a Parquet row, whose columns all rows have.
        record = convert_record({key: value for key, value in record.items() if value is not None})
        check_keys(record, FIELDS, "record")
        question = text("question", record.get("question"))
        if "series" not in record:
            raise ValueError("series: not found, expected a list of numbers, or one of series")
        series = self._all_series(record["series"])
        if not any(each.is_measured for each in series):
            raise ValueError(
                f"series: found no number in {_series_names(series)}, expected one or more that is not null"
            )
        if question.count(PLACEHOLDER) not in (0, len(series)):
            raise ValueError(
                f"question: found {PLACEHOLDER} {question.count(PLACEHOLDER)} times, expected it once for each of "
                f"{len(series)} series, or not at all"
            )
        options = self._options(record.get("options"))
        answer = None if record.get("answer") is None else scalar_text("answer", record["answer"])
        if answer is None and self._answers:
            raise ValueError("answer: not found, expected a text or a number")
        if answer is not None and options:
            option = chosen_option(answer, options)
            if option is None:
                raise ValueError(f"answer: found {describe_value(answer)}, expected one of the options, or its letter")
            answer = option
        kind = label("kind", record.get("kind"), "")
        if kind.partition("/")[0] == "baseline":
            raise ValueError(
                f"kind: found {describe_value(kind)}, which begins the names of the baselines' metrics; rename it"
            )
        key = scalar_text("key", record["key"]) if "key" in record else ""
        return SeriesQuestion(
            where=where, key=key, question=question, series=series, options=options, answer=answer, kind=kind
        )

    def _options(self, found: object) -> tuple[str, ...]:
        if found is None or found == []:
            return ()
        if not isinstance(found, list) or len(found) < 2:
            raise ValueError(f"options: found {describe_value(found)}, expected a list of 2 or more")
        if len(found) > self._limits.options:
            raise ValueError(
                f"options: found {len(found)}, expected at most {self._limits.options}; raise limits.options"
            )
        options = tuple(scalar_text(f"options[{index}]", option) for index, option in enumerate(found))
        if len(set(options)) < len(options):
            raise ValueError(f"options: found {describe_value(found)}, expected options that differ")
        return options

    # -- series ------------------------------------------------------------------------------------------------------

    def _all_series(self, found: object) -> tuple[InputSeries, ...]:
        entries = found if isinstance(found, list) else [found]
        if not entries:
            raise ValueError("series: found an empty list, expected numbers, or a list of series")
        if isinstance(found, list) and not isinstance(found[0], (list, dict, str)):
            entries = [found]  # a single series
        series: list[InputSeries] = []
        for index, entry in enumerate(entries):
            key = f"series[{index}]" if len(entries) > 1 else "series"
            series += self._read_file(key, entry) if _names_file(entry) else [self._series(key, entry, index)]
            if len(series) > self._limits.series:
                raise ValueError(
                    f"series: found more than {self._limits.series}, expected at most that many; raise limits.series"
                )
        return tuple(series)

    def _read_file(self, key: str, entry: object) -> list[InputSeries]:
        fields: Mapping[str, Any] = entry if isinstance(entry, dict) else {"file": entry}
        check_keys(fields, _FILE, key)
        step = fields.get("step")
        columns = fields.get("columns")
        if columns is not None and not (
            isinstance(columns, list) and columns and all(isinstance(c, str) for c in columns)
        ):
            raise ValueError(f"{key}.columns: found {describe_value(columns)}, expected a list of names")
        seconds = None if step is None else number(f"{key}.step", step, 0, LATEST)
        return self._files.read(f"{key}.file", text(f"{key}.file", fields.get("file")), columns, seconds)

    def _series(self, key: str, entry: object, index: int) -> InputSeries:
        fields = {"values": entry} if isinstance(entry, list) else entry
        if not isinstance(fields, dict):
            raise ValueError(
                f"{key}: found {describe_value(entry)}, expected a list of numbers, or an object with values"
            )
        check_keys(fields, _SERIES, key)
        name = label(f"{key}.name", fields.get("name"), f"series {index + 1}")
        unit = label(f"{key}.unit", fields.get("unit"), "")
        for which, found in (("name", name), ("unit", unit)):
            if PLACEHOLDER in found:
                raise ValueError(f"{key}.{which}: found {PLACEHOLDER}, expected a text without it")
        values = measurements(f"{key}.values", fields.get("values"))
        step = None if fields.get("step") is None else number(f"{key}.step", fields["step"], 0, LATEST)
        if fields.get("times") is not None:
            times = stamps(f"{key}.times", fields["times"])
            if len(times) != len(values):
                raise ValueError(
                    f"{key}.times: found {len(times)} stamps, expected one for each of {len(values)} values"
                )
            try:
                values, step = resample(times, values, step, self._limits.steps)
            except ValueError as error:
                raise ValueError(f"{key}.times: {error}") from error
        if len(values) > self._limits.steps:
            raise ValueError(
                f"{key}.values: found {len(values):,} steps, expected at most {self._limits.steps:,}; "
                "raise limits.steps"
            )
        return InputSeries(name or f"series {index + 1}", unit, values, step)


def _series_names(series: Sequence[InputSeries]) -> str:
    return f"any of {len(series)} series" if len(series) > 1 else describe_names([series[0].name])


def _names_file(entry: object) -> bool:
    return isinstance(entry, str) or (isinstance(entry, dict) and "file" in entry)

"""Checks the fields of a record that a file holds: texts, numbers, stamps and lists of bounded size."""

import math
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

import numpy as np
from numpy.typing import NDArray

from datamodules.temporal.series.normalization import LARGEST
from datamodules.temporal.series.resampling import LATEST
from engine.io.json_records import describe_names, describe_value
from engine.number_check import is_number

MOST_SECONDS = 1e11
"""Largest number of seconds, three thousand years; milliseconds since 1970 are larger, and seconds are not."""

_TEXT = 100_000
"""Largest length of a text, in characters."""


def check_keys(record: Mapping[str, object], expected: Collection[str], what: str) -> None:
    """Refuse keys that are not known.

    Raises:
        ValueError: there is an unknown key.
    """
    if unknown := [key for key in record if key not in expected]:
        raise ValueError(f"{what}: found the key {describe_names(unknown)}, expected some of {', '.join(expected)}")


def text(key: str, value: object, default: str | None = None) -> str:
    """Return a text; `default` if the value is None.

    Raises:
        ValueError: the value is not a text, is blank although it has no default, or is too long.
    """
    if value is None and default is not None:
        return default
    if not isinstance(value, str) or (default is None and not value.strip()):
        raise ValueError(f"{key}: found {describe_value(value)}, expected a text")
    if len(value) > _TEXT:
        raise ValueError(f"{key}: found {len(value):,} characters, expected at most {_TEXT:,}")
    return value


def label(key: str, value: object, default: str) -> str:
    """Return a text on one line, such as a name; `default` if the value is None. For errors see `text`."""
    found = text(key, value, default)
    if not found.isprintable():
        raise ValueError(f"{key}: found {describe_value(found)}, expected one line of printable characters")
    return found.strip()


def scalar_text(key: str, value: object) -> str:
    """Return a text or a number as text.

    Raises:
        ValueError: the value is neither, or blank.
    """
    if is_number(value) and math.isfinite(value):
        return str(value)
    return text(key, value).strip()


def number(key: str, value: object, above: float, at_most: float) -> float:
    """Return a number in a range.

    Raises:
        ValueError: the value is not a number, or out of the range.
    """
    if not is_number(value) or not above < value <= at_most:
        raise ValueError(
            f"{key}: found {describe_value(value)}, expected a number above {above:g}, at most {at_most:g}"
        )
    return float(value)


def measurements(key: str, values: object) -> NDArray[np.float64]:
    """Return numbers [n], NaN for null.

    Raises:
        ValueError: the value is not a list, is empty, or has an entry that is not a number of at most LARGEST; the
            message names the entry, from 1.
    """
    column = _floats(key, values, "a number, or null for a gap")
    outside = np.abs(column) > LARGEST
    if outside.any():
        index = int(outside.argmax())
        raise ValueError(f"{key}[{index}]: found {column[index]:g}, expected a number of at most {LARGEST:g}")
    return column


def stamps(key: str, values: object, seconds: float = 1.0) -> NDArray[np.float64]:
    """Return stamps [n] in seconds: numbers in units of `seconds`, or dates and times in ISO 8601.

    Raises:
        ValueError: the value is not such a list, is empty, or a stamp is beyond LATEST, a number of seconds beyond
            MOST_SECONDS.
    """
    if (
        isinstance(values, Sequence)
        and not isinstance(values, str)
        and values
        and isinstance(values[0], (str, datetime))
    ):
        column = np.array([_moment(f"{key}[{index}]", value) for index, value in enumerate(values)])
    else:
        expected = "a number of seconds, or a date and time"
        column = _floats(key, values, expected) * seconds
        if isinstance(values, Sequence) and None in values:
            raise ValueError(f"{key}[{values.index(None)}]: found null, expected {expected}")
        # JavaScript, Grafana and pandas write milliseconds; steps of them would be 1,000 times too long.
        if seconds == 1.0 and (late := np.abs(column) > MOST_SECONDS).any():
            index = int(late.argmax())
            raise ValueError(
                f"{key}[{index}]: found {column[index]:.0f}, which is no time of this era in seconds; divide the "
                "numbers by 1000 if they are milliseconds"
            )
    # Written with ~, so that NaN is refused as well.
    wrong = ~(np.abs(column) <= LATEST)
    if wrong.any():
        index = int(wrong.argmax())
        raise ValueError(f"{key}[{index}]: found {column[index]:g}, expected a stamp of at most {LATEST:g} s")
    return column


def _floats(key: str, values: object, expected: str) -> NDArray[np.float64]:
    if not isinstance(values, (list, tuple)) or not values:
        raise ValueError(f"{key}: found {describe_value(values)}, expected a list of numbers")
    for index, value in enumerate(values):
        if value is not None and not is_number(value):
            raise ValueError(f"{key}[{index}]: found {describe_value(value)}, expected {expected}")
    return np.array([math.nan if value is None else float(value) for value in values], np.float64)


def _moment(key: str, value: Any) -> float:
    try:
        # Python 3.10 does not know Z.
        found = value if isinstance(value, datetime) else datetime.fromisoformat(value.strip().replace("Z", "+00:00"))
    except (ValueError, AttributeError) as error:
        raise ValueError(
            f"{key}: found {describe_value(value)}, expected a date and time such as 2024-05-01T06:00:00"
        ) from error
    return (found if found.tzinfo else found.replace(tzinfo=timezone.utc)).timestamp()

"""Parses times that users give: numbers of seconds since 1970, or ISO 8601 dates, UTC unless they have an offset."""

import re
from datetime import datetime, timezone
from numbers import Real
from typing import Any

LATEST_TIME = 7_258_118_400
"""2200-01-01 in seconds. A later time is probably in milliseconds, and is rejected instead of being rescaled."""

ISO_DATE = (
    r"^(?P<date>[1-9][0-9]{3}-[0-9]{2}-[0-9]{2})"
    r"(?:[T ](?P<clock>[0-9]{2}:[0-9]{2})(?P<second>:[0-5][0-9])?(?:[.,][0-9]{1,9})?"
    r"(?:Z|(?P<sign>[+-])(?P<hours>[01][0-9]|2[0-3])(?::?(?P<minutes>[0-5][0-9]))?)?)?$"
)
"""Pattern of an ISO 8601 date, with or without time of day and offset."""

_ISO_PATTERN = re.compile(ISO_DATE.replace("$", r"\Z"))


def is_iso(text: str) -> bool:
    """Return whether a text has the form of an ISO 8601 date, with or without time of day and offset."""
    return _ISO_PATTERN.match(text) is not None


def iso_seconds(text: str) -> int | None:
    """Return the time of an ISO 8601 date in seconds since 1970, rounded down; None if it is not such a date."""
    match = _ISO_PATTERN.match(text)
    if not match:
        return None
    clock = (match["clock"] or "00:00") + (match["second"] or ":00")
    try:
        local = datetime.strptime(f"{match['date']} {clock} +0000", "%Y-%m-%d %H:%M:%S %z")
    except ValueError:  # the 30th of February
        return None
    offset = 3600 * int(match["hours"] or 0) + 60 * int(match["minutes"] or 0)
    elapsed = local - datetime(1970, 1, 1, tzinfo=timezone.utc)
    # A local time east of Greenwich (`+`) is later than UTC, so its offset is subtracted.
    return round(elapsed.total_seconds()) - (-offset if match["sign"] == "-" else offset)


def to_seconds(value: object) -> float | None:
    """Return a time in seconds since 1970; None if it is not a time.

    Args:
        value: a number of seconds, also of NumPy, or an ISO 8601 date. Milliseconds are refused: see `LATEST_TIME`.
    """
    seconds: Any = iso_seconds(value) if isinstance(value, str) else value
    is_number = isinstance(seconds, Real) and not isinstance(seconds, bool)
    if not is_number or not 0 <= seconds <= LATEST_TIME:
        return None
    return seconds if isinstance(seconds, int | float) else float(seconds)


EXPECTED_TIME = "seconds since 1970 (milliseconds: divide by 1000) or an ISO 8601 date"
"""What `to_seconds` accepts, for messages."""

"""Parses times of events in columns and text files."""

import math
import re
from typing import TYPE_CHECKING

from datamodules.recommender.reading.errors import preview
from engine.timestamp import ISO_DATE, LATEST_TIME, is_iso, iso_seconds

if TYPE_CHECKING:
    import polars as pl

_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)


def parse_iso(texts: "pl.Series") -> "pl.Series":
    """Parse a column of ISO 8601 dates to float seconds since 1970.

    A value that is not such a date becomes null.
    """
    import polars as pl

    parts = texts.str.extract_groups(ISO_DATE).struct.unnest()
    # The pattern matches digits only; `strict=False` turns dates that do not exist, such as 30 February, into null.
    seconds = (
        pl.concat_str("date", pl.lit(" "), pl.col("clock").fill_null("00:00"), pl.col("second").fill_null(":00"))
        .str.to_datetime("%Y-%m-%d %H:%M:%S", strict=False)
        .dt.epoch("s")
    )
    offset = 3600 * pl.col("hours").cast(pl.Int64).fill_null(0) + 60 * pl.col("minutes").cast(pl.Int64).fill_null(0)
    offset = pl.when(pl.col("sign") == "-").then(-offset).otherwise(offset)
    return parts.select((seconds - offset).cast(pl.Float64).alias(texts.name)).to_series()


def time_fault(value: str, iso: bool = False) -> str | None:
    """Return what is wrong with a time in a text file; None if it is valid.

    Args:
        value: the field.
        iso: whether the first row of the file has an ISO 8601 date, so all rows need a date.
    """
    if iso:
        seconds = iso_seconds(value)
        time = math.nan if seconds is None else float(seconds)
    else:
        time = float(value) if _NUMBER.fullmatch(value) else math.nan
    if not math.isfinite(time):
        expected = "an ISO 8601 date as in the first row" if iso else "a time in seconds since 1970 or an ISO date"
        also = "" if iso or not is_iso(value) else "; the first row has a number, and a column has one form"
        return f"found {preview(value)}, expected {expected}{also}"
    if time < 0:
        return (
            f"found {preview(value)}, a {'time before 1970' if iso else 'negative time'}; expected seconds since 1970"
        )
    if time > LATEST_TIME:
        advice = "" if iso else "; expected seconds (divide milliseconds by 1000)"
        return f"found {preview(value)}, a time after the year 2200{advice}"
    return None

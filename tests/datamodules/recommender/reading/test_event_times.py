"""Tests the parsing of ISO 8601 dates as times of events."""

from datetime import datetime, timedelta, timezone
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datamodules.recommender.reading.errors import InteractionError
from datamodules.recommender.reading.event_times import parse_iso, time_fault
from datamodules.recommender.reading.file_formats import detect_layout
from datamodules.recommender.reading.interactions import read_interactions
from engine.timestamp import iso_seconds

moments = st.datetimes(datetime(1970, 1, 3), datetime(2199, 1, 1))
offsets = st.integers(-23 * 60, 23 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
texts = st.one_of(
    st.builds(lambda moment, zone: moment.replace(tzinfo=zone).isoformat(), moments, offsets),
    st.builds(lambda moment, between: moment.isoformat(between), moments, st.sampled_from("T ")),
    st.builds(lambda moment: moment.date().isoformat(), moments),
)


@settings(max_examples=60, deadline=None)
@given(texts=st.lists(texts, min_size=1, max_size=8))
def test_dates_have_the_seconds_of_the_standard_library(texts: list[str]) -> None:
    actual = [datetime.fromisoformat(text) for text in texts]
    expected = [
        (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).replace(microsecond=0) for moment in actual
    ]
    seconds = [round((moment - datetime(1970, 1, 1, tzinfo=timezone.utc)).total_seconds()) for moment in expected]
    assert [iso_seconds(text) for text in texts] == seconds
    assert parse_iso(pl.Series("time", texts)).to_list() == seconds


strange = st.text(st.sampled_from("0123456789-:T Z+.,é"), max_size=26) | st.builds(
    lambda text, index, other: text[:index] + other + text[index + 1 :],
    texts,
    st.integers(0, 25),
    st.sampled_from("09-:TZ+ "),
)


@settings(max_examples=150, deadline=None)
@given(text=strange)
def test_both_parsers_accept_the_same_texts(text: str) -> None:
    assert parse_iso(pl.Series("time", [text])).to_list() == [iso_seconds(text)]


@pytest.mark.parametrize("text", ["2014-07-23T10:00Z", "2014-07-23 12:00:00+02", "2014-07-23T10:00:00,5+0000"])
def test_all_forms_of_a_moment_are_read_as_the_same_second(text: str) -> None:
    assert iso_seconds(text) == 1_406_109_600


@pytest.mark.parametrize(
    "text", ["2014-02-30", "2014-07-23T24:00", "2014-07-23T10:60", "2014-07-23T10:00:60", "2014-07-23T10:00+24:00", "x"]
)
def test_invalid_dates_are_refused(text: str) -> None:
    assert iso_seconds(text) is None
    assert "expected an ISO 8601 date" in str(time_fault(text, iso=True))


def test_dates_written_as_numbers_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("user,item,date\na,x,20140723\na,y,20140801\n")
    with pytest.raises(InteractionError, match=r"a\.csv: column 'date': found numbers such as 20140723.*2014-07-23"):
        read_interactions(detect_layout(tmp_path))


def test_seconds_of_1970_are_read_unless_all_are_dates(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("user,item,date\na,x,20140723\na,y,20140832\n")
    assert read_interactions(detect_layout(tmp_path)).times.tolist() == [20140723, 20140832]


def test_a_table_with_dates_is_read_as_utc(tmp_path: Path) -> None:
    rows = "a,x,2014-07-23\na,y,2014-07-23T10:00:00+02:00\na,z,2014-07-23 10:00:00.75Z\n"
    (tmp_path / "a.csv").write_text("user,item,date\n" + rows)
    assert read_interactions(detect_layout(tmp_path)).times.tolist() == [1_406_073_600, 1_406_102_400, 1_406_109_600]

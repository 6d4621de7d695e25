"""Tests the reading of interactions and titles in every format, and the errors of invalid lines."""

from datetime import datetime
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datamodules.recommender.reading import error_location
from datamodules.recommender.reading.errors import InteractionError
from datamodules.recommender.reading.file_formats import detect_layout
from datamodules.recommender.reading.interactions import Interactions, read_interactions
from datamodules.recommender.reading.titles import read_titles

HEADER = "user_id,item_id,timestamp\n"
INTER = "user_id:token\titem_id:token\trating:float\ttimestamp:float\n"


def read(path: Path, data: str | bytes) -> Interactions:
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return read_interactions(detect_layout(path))


def rows(found: Interactions) -> list[tuple[str, str, int]]:
    return [
        (found.user_ids[user], found.item_ids[item], time)
        for user, item, time in zip(found.users, found.items, found.times.tolist(), strict=True)
    ]


EXPECTED = [("7", "10", 978300019), ("2", "11", 978300018), ("7", "10", 978300019)]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ratings.dat", "7::10::5::978300019\n2::11::1::978300018\n7::10::5::978300019\n"),
        ("ratings.dat", "7::10::5::978300019\r\n2::11::1::978300018\r\n7::10::5::978300019\r\n"),
        ("u.data", "7\t10\t5\t978300019\n2\t11\t1\t978300018\n7\t10\t5\t978300019\n"),
        ("ratings.csv", "userId,movieId,rating,timestamp\n7,10,5.0,978300019\n2,11,.5,978300018\n7,10,5.0,978300019\n"),
        ("a.inter", INTER + "7\t10\t5\t978300019\n2\t11\t1\t978300018.75\n7\t10\t5\t978300019.0\n"),
        ("a.csv", HEADER + "7,10,978300019\n2,11,978300018\n7,10,9.78300019e8"),
        ("a.csv", "\ufeff" + HEADER.replace("\n", "\r\n") + '"7",10,978300019\r\n2,11,978300018\r\n7,10,978300019\r\n'),
        ("a.tsv", "timestamp\tuser_id\titem_id\n978300019\t7\t10\n978300018\t2\t11\n978300019\t7\t10\n"),
    ],
)
def test_every_format_gives_the_same_rows_in_file_order(tmp_path: Path, name: str, text: str) -> None:
    assert rows(read(tmp_path / name, text)) == EXPECTED, "duplicates stay, times are floored"


def test_ids_of_tables_are_text(tmp_path: Path) -> None:
    interactions = read(tmp_path / "a.csv", HEADER + "007,a b,1\n7,ü,2\n")
    assert rows(interactions) == [("007", "a b", 1), ("7", "ü", 2)]


def test_a_quoted_field_may_hold_separators_and_line_breaks(tmp_path: Path) -> None:
    interactions = read(tmp_path / "a.csv", 'user_id,review,item_id,timestamp\na,"good,\nreally",x,1\nb,"",y,2\n')
    assert rows(interactions) == [("a", "x", 1), ("b", "y", 2)]


@pytest.mark.parametrize(
    "columns",
    [
        {"user_id": [7, 2], "item_id": ["x", "y"], "timestamp": [5, 6]},
        {"user_id": ["7", "2"], "item_id": ["x", "y"], "timestamp": [5.9, 6.0]},
        {"user_id": [7, 2], "item_id": ["x", "y"], "timestamp": [datetime(1970, 1, 1, 0, 0, s) for s in (5, 6)]},
        {"user_id": [7, 2], "item_id": pl.Series(["x", "y"], dtype=pl.Categorical), "timestamp": [5, 6]},
    ],
)
def test_parquet_columns_of_many_types_are_read(tmp_path: Path, columns: dict) -> None:
    pl.DataFrame(columns).write_parquet(tmp_path / "a.parquet")
    assert rows(read_interactions(detect_layout(tmp_path))) == [("7", "x", 5), ("2", "y", 6)]


field = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z"), exclude_characters=',"'), min_size=1)
lines = st.lists(st.tuples(field, field, st.integers(0, 4_000_000_000)), min_size=1, max_size=20)


@settings(deadline=None, max_examples=40)
@given(expected=lines)
def test_any_text_is_an_id(tmp_path_factory: pytest.TempPathFactory, expected: list[tuple[str, str, int]]) -> None:
    path = tmp_path_factory.mktemp("table") / "a.csv"
    assert rows(read(path, HEADER + "".join(f"{user},{item},{time}\n" for user, item, time in expected))) == expected


DAT = "1::10::5::978300019\n"
U_DATA = "1\t10\t5\t978300019\n"


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        (
            "ratings.dat",
            DAT + "1::ten::5::978300019\n",
            r"line 2: column 'movieId': found 'ten', expected an integer id",
        ),
        ("ratings.dat", DAT + "1::10::5\n", r"line 2: found 3 fields, expected 4 \(userId::movieId.*cut off"),
        ("ratings.dat", DAT + "1::10::5::9::9\n", r"line 2: found 5 fields, expected 4"),
        ("ratings.dat", DAT + "1::11::5::9783", r"line 2: found '1::11::5::9783' without a line end.*cut off"),
        ("ratings.dat", DAT + "\n" + DAT, r"line 2: the line is empty; remove it"),
        ("ratings.dat", DAT + "1::10::5::-3\n", r"line 2: column 'timestamp': found '-3', a negative time"),
        ("ratings.dat", DAT + "1::10::5::noon\n", r"line 2: column 'timestamp': found 'noon', expected a time"),
        ("ratings.dat", DAT * 3 + "::10::5::9\n", r"line 4: column 'userId': the id is empty, expected an integer"),
        ("u.data", U_DATA + "1\t10\t5\t9\t9\n", r"line 2: found 5 fields, expected 4"),
        ("u.data", U_DATA + "1\t10\n", r"line 2: found 2 fields, expected 4"),
        ("u.data", U_DATA + "1.5\t10\t5\t9\n", r"line 2: column 'userId': found '1.5', expected an integer id"),
        ("ratings.csv", "userId,movieId,rating,timestamp\n1,10,5,978300019\n1,x,5,1\n", r"line 3: column 'movieId'"),
        ("a.inter", INTER + "u\ti\t5\tnan\n", r"line 2: column 'timestamp:float': found 'nan', expected a time"),
        ("a.inter", INTER + "u\ti\t5\tinf\n", r"line 2: column 'timestamp:float': found 'inf', expected a time"),
        ("a.inter", INTER + "u\ti\t5\t\n", r"line 2: column 'timestamp:float': found '', expected a time"),
        ("a.inter", INTER + "u\t\t5\t1\n", r"line 2: column 'item_id:token': the id is empty"),
        ("a.csv", HEADER + "a,x,1\n  ,x,1\n", r"line 3: column 'user_id': the id is empty"),
        ("a.csv", HEADER + "a,x,1\na,x\n", r"line 3: found 2 fields, expected 3 \(user_id,item_id,timestamp\)"),
        ("a.csv", "timestamp,user_id,item_id,tag\n1,u,i,t\n1,u,i\n", r"line 3: found 3 fields, expected 4"),
        ("a.csv", HEADER + "a,x,1\na,x,1,1\n", r"line 3: found 4 fields, expected 3"),
        ("a.csv", HEADER + "a,x,noon\n", r"line 2: column 'timestamp': found 'noon', expected a time in seconds"),
        ("a.csv", HEADER + "a,x,5\na,x,2014-07-23\n", r"line 3: .*found '2014-07-23'.*the first row has a number"),
        (
            "a.csv",
            HEADER + "a,x,2014-07-23\na,x,5\n",
            r"line 3: .*found '5', expected an ISO 8601 date as in the first",
        ),
        ("a.csv", HEADER + "a,x,2014-02-30\n", r"line 2: .*found '2014-02-30', expected an ISO 8601 date"),
        ("a.csv", HEADER + "a,x,978300019000\n", r"line 2: .*found '978300019000', a time after the year 2200.* 1000"),
        ("a.csv", (HEADER + "a,x,1\nm").encode() + b"\xfcller,x,1\n", r"line 3: the text is not UTF-8"),
        ("a.inter", (INTER + "u\ti\t").encode() + b"\xe9\t1\n", r"line 2: the text is not UTF-8"),
        ("a.csv", 'user_id,note,item_id,timestamp\na,"1\n2",x,1\nb,,y,?\n', r"line 4: column 'timestamp': found '\?'"),
    ],
)
def test_a_fault_is_found_to_the_line(tmp_path: Path, name: str, text: str | bytes, expected: str) -> None:
    with pytest.raises(InteractionError, match=expected) as caught:
        read(tmp_path / name, text)
    assert str(caught.value).startswith(f"{tmp_path / name}: line ")


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (
            {"user_id": [1.0], "item_id": [1], "timestamp": [1]},
            "column 'user_id': found type Float64, expected integers",
        ),
        (
            {"user_id": [1], "item_id": [1], "timestamp": ["1"]},
            "column 'timestamp': found type String, expected numbers",
        ),
        ({"user_id": [1, None], "item_id": [1, 2], "timestamp": [1, 1]}, "row 2: column 'user_id': the id is empty"),
        ({"user_id": [1, 1], "item_id": ["a", " "], "timestamp": [1, 1]}, "row 2: column 'item_id': the id is empty"),
        (
            {"user_id": [1, 1], "item_id": [1, 2], "timestamp": [1, None]},
            "row 2: column 'timestamp': found '', expected a time",
        ),
        (
            {"user_id": [1], "item_id": [1], "timestamp": [datetime(1960, 1, 1)]},
            "row 1: column 'timestamp': found .*neg",
        ),
    ],
)
def test_a_fault_in_parquet_is_found_to_the_row(tmp_path: Path, columns: dict, expected: str) -> None:
    pl.DataFrame(columns).write_parquet(tmp_path / "a.parquet")
    with pytest.raises(InteractionError, match=expected):
        read_interactions(detect_layout(tmp_path))


def test_many_row_groups_with_and_without_values_are_one_column(tmp_path: Path) -> None:
    rows_of = [(f"u{n % 7}", n, None if n == 41 else n) for n in range(50)]
    table = pl.DataFrame(rows_of, schema=["user.id", "user", "timestamp"], orient="row")
    table.write_parquet(tmp_path / "a.parquet", row_group_size=6)
    layout = detect_layout(tmp_path / "a.parquet", user_column="user.id", item_column="user", time_column="timestamp")
    with pytest.raises(InteractionError, match="row 42: column 'timestamp': found ''"):
        read_interactions(layout)
    table.head(40).write_parquet(tmp_path / "a.parquet", row_group_size=6)
    assert rows(read_interactions(layout)) == [(user, str(item), time) for user, item, time in rows_of[:40]]


def test_a_header_without_rows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InteractionError, match=r"a\.csv: no interactions after the header"):
        read(tmp_path / "a.csv", HEADER)
    pl.DataFrame(
        {"user_id": [], "item_id": [], "timestamp": []}, schema=dict.fromkeys(HEADER[:-1].split(","), pl.Int64)
    ).write_parquet(tmp_path / "a.parquet")
    with pytest.raises(InteractionError, match=r"a\.parquet: no interactions"):
        read_interactions(detect_layout(tmp_path / "a.parquet"))


@pytest.mark.parametrize(
    ("name", "data", "expected"),
    [
        (
            "movies.dat",
            "1::Amélie: a::b (2001)::Comedy\n2::Heat (1995)::Crime|Drama\n".encode("latin-1"),
            "Amélie: a::b (2001)",
        ),
        ("movies.dat", "1::Amélie (2001)::Comedy\n".encode(), "Amélie (2001)"),  # MovieLens 10M
        ("u.item", "1|Amélie (2001)|01-Jan-1995||http://x|0|1\n".encode("latin-1"), "Amélie (2001)"),
        ("movies.csv", 'movieId,title,genres\n1,"Amélie, a film (2001)",Comedy\n'.encode(), "Amélie, a film (2001)"),
        ("a.item", "item_id:token\tname:token\tmovie_title:token_seq\n1\tx\tAmélie\n".encode(), "Amélie"),
        ("a.item", "name:token_seq\titem_id:token\nAmélie\t1\n".encode(), "Amélie"),
    ],
)
def test_titles_are_read_in_every_format_and_encoding(tmp_path: Path, name: str, data: bytes, expected: str) -> None:
    (tmp_path / name).write_bytes(data)
    assert read_titles(tmp_path / name, "item_id:token")["1"] == expected


def test_a_side_file_without_a_title_has_none(tmp_path: Path) -> None:
    (tmp_path / "a.item").write_text("item_id:token\tclass:token\n1\tx\n")
    assert read_titles(tmp_path / "a.item", "item_id:token") == {}


@pytest.mark.parametrize(
    ("name", "data", "expected"),
    [
        ("movies.dat", b"1::Heat (1995)::Crime\n2\n", r"movies\.dat: line 2: found '2', expected item id and title"),
        ("movies.csv", b"movieId,title,genres\n1,Heat,Crime\n2\n", r"movies\.csv: line 3: found '2'"),
        ("movies.csv", b"movieId,title,genres\n\n1,Heat,Crime\n\n2\n", r"movies\.csv: line 5: found '2'"),
        ("movies.dat", b"\n1::Heat (1995)::Crime\n\n2\n", r"movies\.dat: line 4: found '2'"),
        ("movies.csv", b"movieId,title,genres\n1,Am\xe9lie,Comedy\n", r"movies\.csv: byte 25 is not UTF-8"),
        ("movies.csv", b"movieId,title,genres\n\n1,Shawshank, The,Crime\n", r"line 3: found '1,Sha.* with 4 fields"),
        (
            "movies.csv",
            b"1,Heat,Crime\n2,Alien,Horror\n",
            r"line 1: found '1,Heat,Crime', expected the columns movieId",
        ),
        ("movies.csv", b"", r"line 1: found no line, expected the columns movieId,title"),
        ("movies.dat", b"1::Heat::A\n\n2::Alien::B\n1::Hot::A\n", r"line 4: found two titles of item '1', 'Heat' and"),
        ("movies.dat", b"1::Heat::A\r2::Alien::B\r", r"line 1: found a carriage return; expected lines"),
        ("movies.dat", b"\n", r"movies\.dat: found no item"),
        ("u.item", b"1|Heat|1995\n2|A|B|1979\n", r"u\.item: line 2: found .* with 4 fields; expected .* in 3 fields"),
        ("a.item", b"item_id:token\tname:token\n1\tA\tB\n", r"a\.item: line 2: found .* with 3 fields"),
    ],
)
def test_a_broken_file_of_titles_is_refused_by_name(tmp_path: Path, name: str, data: bytes, expected: str) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(InteractionError, match=expected):
        read_titles(tmp_path / name)


def test_other_invalid_lines_are_searched_near_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Searching 100 million lines in plain Python for more errors would take half an hour."""
    monkeypatch.setattr(error_location, "_SEARCHED", 5)
    valid = "u,i,5\n"
    message = r"line 3: found 1 fields.*\nOther invalid lines: 5 and perhaps more$"
    with pytest.raises(InteractionError, match=message):
        read(tmp_path / "a.csv", HEADER + valid + "cut\n" + valid + "cut\n" + 9 * valid + "cut\n")

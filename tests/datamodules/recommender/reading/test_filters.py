"""Tests the filters against plain loops: kept rows, counts of dropped rows, exact ratings."""

from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from datamodules.recommender.reading.errors import InteractionError
from datamodules.recommender.reading.file_formats import detect_layout, with_ratings
from datamodules.recommender.reading.filters import Filters, apply_filters
from datamodules.recommender.reading.interactions import Interactions, read_interactions


class Row(NamedTuple):
    user: str
    item: str
    rating: float


def interactions(rows: list[Row]) -> Interactions:
    users, items = (list(dict.fromkeys(row[column] for row in rows)) for column in (0, 1))
    return Interactions(
        np.array([users.index(row.user) for row in rows], np.int32),
        np.array([items.index(row.item) for row in rows], np.int32),
        np.zeros(len(rows), np.int64),
        users,
        items,
        np.array([row.rating for row in rows]),
    )


def one_by_one(rows: list[Row], filters: Filters) -> list[Row]:
    """The k-core by its definition: drop one row that has too few others at a time, until there is none."""
    rows = [row for row in rows if filters.min_rating is None or row.rating >= filters.min_rating]
    while True:
        users, items = Counter(row.user for row in rows), Counter(row.item for row in rows)
        for index, row in enumerate(rows):
            if items[row.item] < filters.min_item_interactions or users[row.user] < filters.min_user_interactions:
                del rows[index]
                break
        else:
            return rows


def once(rows: list[Row], filters: Filters) -> list[Row]:
    rows = [row for row in rows if filters.min_rating is None or row.rating >= filters.min_rating]
    items = Counter(row.item for row in rows)
    rows = [row for row in rows if items[row.item] >= filters.min_item_interactions]
    users = Counter(row.user for row in rows)
    return [row for row in rows if users[row.user] >= filters.min_user_interactions]


some_rows = st.lists(
    st.builds(Row, st.sampled_from("abcde"), st.sampled_from("uvwxyz"), st.sampled_from([1, 2.5, 4])),
    min_size=1,
    max_size=40,
)
some_filters = st.builds(
    Filters, st.integers(0, 4), st.integers(0, 4), st.booleans(), st.sampled_from([None, 1, 2.5, 3, 5])
)
CHAIN = [Row(user, item, 4.0) for user, item in ("ux", "uy", "vy", "vz", "wz", "ww")]
"""The first round drops the ends of a chain, each later one the new ends."""


@given(rows=some_rows, filters=some_filters)
@example(rows=CHAIN, filters=Filters(2, 2, k_core=True))
@example(rows=CHAIN, filters=Filters(2, 2))
@example(
    rows=[Row("a", "x", 4.0), Row("a", "y", 4.0), Row("b", "x", 4.0), Row("b", "y", 1.0)],
    filters=Filters(2, 1, True, 2),
)
def test_the_filters_keep_what_a_plain_loop_keeps(rows: list[Row], filters: Filters) -> None:
    expected = (one_by_one if filters.k_core else once)(list(rows), filters)
    if not expected:
        with pytest.raises(InteractionError, match=f"nothing is left of {len(rows)} rows") as error:
            apply_filters(interactions(rows), filters)
        assert len(str(error.value).splitlines()) <= 3
        return
    actual = apply_filters(interactions(rows), filters)
    assert [row for row, kept in zip(rows, actual.kept, strict=True) if kept] == expected
    head, _, parts = actual.report.partition(" rows = ")
    counts = [int(part.split()[0]) for part in parts.split(" + ")]
    assert int(head) == len(rows) == sum(counts)
    assert counts[0] == len(expected)


def test_the_report_names_each_filter() -> None:
    rows = [*(Row(user, item, 5.0) for user in "ab" for item in "xy"), Row("a", "z", 5.0), Row("c", "x", 5.0)]
    rows.append(Row("b", "y", 0.5))
    assert apply_filters(interactions(rows), Filters(2, 2, True, 1)).report == (
        "7 rows = 4 kept + 1 with a rating below 1 + 1 of items with fewer than 2 rows + 1 of users with fewer than 2 "
        "rows (2 rounds of the filters, until nothing changed)"
    )


def ratings(path: Path, text: str, column: str | None = None) -> list[float]:
    path.write_text(text)
    found = read_interactions(with_ratings(detect_layout(path), column)).ratings
    assert found is not None
    return found.tolist()


TABLE = "user,item,timestamp,rating\n"


@pytest.mark.parametrize(
    ("name", "text", "column"),
    [
        ("ratings.dat", "7::10::5::9\n2::11::1::8\n", None),
        ("u.data", "7\t10\t5\t9\n2\t11\t1\t8\n", None),
        ("ratings.csv", "userId,movieId,rating,timestamp\n7,10,5.0,9\n2,11,1,8\n", None),
        ("a.inter", "user_id:token\titem_id:token\trating:float\n7\t10\t5\n2\t11\t1.0\n", None),
        ("a.txt", "7 10 5.0 9\n2 11 1.0 8\n", None),
        ("a.csv", TABLE + '7,10,9,5.0\n2,11,8,"1"', None),
        ("a.csv", "user,item,Stars\n7,10,5.0\n2,11,1\n", None),
        ("a.csv", "user,item,rating,liking\n7,10,n/a,5\n2,11,,1\n", "liking"),
    ],
)
def test_ratings_are_read_from_every_format(tmp_path: Path, name: str, text: str, column: str | None) -> None:
    assert ratings(tmp_path / name, text, column) == [5.0, 1.0]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (pl.Series([5, 1], dtype=pl.Int8), None),
        (pl.Series([4.7, 1.0]), None),
        (pl.Series(["5", "1"]), r"column 'rating': found type String, expected numbers"),
        (pl.Series([5.0, None]), r"row 2: column 'rating': found '', expected a rating"),
    ],
)
def test_ratings_of_parquet_are_read_or_refused(tmp_path: Path, values: pl.Series, expected: str | None) -> None:
    pl.DataFrame({"user": ["a", "b"], "item": ["x", "y"], "rating": values}).write_parquet(tmp_path / "a.parquet")
    layout = with_ratings(detect_layout(tmp_path / "a.parquet"))
    if expected is None:
        assert read_interactions(layout).ratings.tolist() == values.to_list()
        return
    with pytest.raises(InteractionError, match=expected):
        read_interactions(layout)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.csv", TABLE + "a,x,1,4\na,y,2,\n", "line 3: column 'rating': found '', expected a rating"),
        ("a.csv", TABLE + "a,x,1,good\na,y,2,4\n", "line 2: column 'rating': found 'good', expected a rating"),
        ("a.csv", TABLE + "a,x,1,4\na,y,2,nan\n", "line 3: column 'rating': found 'nan', expected a rating"),
        ("a.csv", TABLE + "a,x,1,4\na,y,2,1e999\n", "line 3: column 'rating': found '1e999', expected a rating"),
        ("a.csv", TABLE + "a,x,1,45\na,y,2,4", "line 3: found 'a,y,2,4' without a line end"),
        ("a.csv", "user,item,time\na,x,1\n", "no rating column. Its columns: 'user', 'item', 'time'.*rating_column"),
        ("a.txt", "1 2\n", "no rating column"),
    ],
)
def test_invalid_and_missing_ratings_are_named(tmp_path: Path, name: str, text: str, expected: str) -> None:
    with pytest.raises(InteractionError, match=expected):
        ratings(tmp_path / name, text)
    (tmp_path / name).write_text(text)
    assert read_interactions(detect_layout(tmp_path / name)).ratings is None, (
        "ratings that nothing reads are not validated"
    )


def test_a_rating_is_not_also_another_column(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(TABLE + "a,x,1,4\n")
    with pytest.raises(InteractionError, match="rating_column: 'item' is the user, item or time already"):
        with_ratings(detect_layout(tmp_path / "a.csv"), "item")

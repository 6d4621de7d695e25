"""Each error of the csv module that a user's table can cause is explained."""

import csv

import pytest

from engine.io.csv_error import describe_csv_error, field_limit


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["a,b\rc,d\r"], "lines that end with CR alone"),
        (['a,"b\n', "c,d\n"], "quotes that are not closed"),
        (['a,"b" c\n'], "text after the quotes of a field"),
        (["a," + "b" * 200_000], "a field that is too long"),
    ],
)
def test_an_error_of_the_csv_module_is_explained(lines, expected):
    with field_limit(100_000), pytest.raises(csv.Error) as error:
        list(csv.reader(lines, strict=True))
    assert describe_csv_error(error.value).startswith(expected)


def test_another_error_keeps_its_text():
    assert describe_csv_error(csv.Error("line contains NUL")) == "an invalid line (line contains NUL)"


def test_the_limit_is_restored_after_an_error():
    before = csv.field_size_limit()
    with pytest.raises(csv.Error, match="field limit"), field_limit(9):
        list(csv.reader(["a" * 10]))
    with field_limit(before + 10):
        assert list(csv.reader(["a" * (before + 1)])) == [["a" * (before + 1)]]
    assert csv.field_size_limit() == before

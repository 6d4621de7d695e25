"""Tests the vectorized count of rows against a plain reference, on any bytes and block sizes."""

from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from datamodules.recommender.reading.csv_records import records
from datamodules.recommender.reading.file_formats import Layout
from datamodules.recommender.reading.line_scan import count_text_rows

COLUMNS = ("user", "item", "time")


def layout(path: Path, separator: str = ",", quoted: bool = True, columns: tuple[str, ...] = COLUMNS) -> Layout:
    return Layout("table", path, "user", "item", "time", columns, separator, header=False, quoted=quoted)


def reference(of: Layout) -> int | None:
    """Number of records if all are whole, by the plain reader."""
    read = list(records(of))
    bad = [record for record in read if record.fault or len(record.fields) != len(of.columns)]
    return None if bad or b"\x00" in of.path.read_bytes() else len(read)


pieces = st.sampled_from(
    ['"', '""', ",", "\n", "\r\n", "\r", "a", "5", "a,b,5\n", '"a","b,\n",5\n', "é", "\x00", "\ufeff"]
)


@settings(max_examples=150, deadline=None)
@given(text=st.lists(pieces, max_size=14).map("".join), block_size=st.sampled_from([1, 2, 3, 7, 1 << 20]))
@example(text='a,"TV,5\nb,y,6\nc,Radio",7\n', block_size=3)
@example(text='"a"\r\r\n', block_size=1)
@example(text='""",b,5\n', block_size=1)
def test_any_text_is_counted_as_the_plain_reader_counts(
    tmp_path_factory: pytest.TempPathFactory, text: str, block_size: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.csv"
    path.write_bytes(text.encode())
    assert count_text_rows(layout(path), block_size) == reference(layout(path))


fields = st.text(st.sampled_from('ab",\n;é'), max_size=6)


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(st.tuples(fields, fields, st.integers(0, 99)), min_size=1, max_size=12),
    ends=st.sampled_from(["\n", "\r\n"]),
)
def test_correct_quotes_are_always_accepted(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str, int]], ends: str
) -> None:
    path = tmp_path_factory.getbasetemp() / "quoted.csv"
    quoted = (",".join('"' + str(field).replace('"', '""') + '"' for field in row) + ends for row in rows)
    path.write_bytes("".join(quoted).encode())
    assert count_text_rows(layout(path), 5) == len(rows)
    assert [[field.decode() for field in record.fields] for record in records(layout(path))] == [
        [user, item, str(time)] for user, item, time in rows
    ]


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("1::2::3\n4::5::6\n", 2),
        ("1::2::3\r\n4::5::6", 2),
        ("1::2::3\n4::5\t::6\n", None),
        ("1::2::3\n4::5\n", None),
    ],
)
def test_rows_with_separators_of_two_bytes_are_counted(tmp_path: Path, text: str, rows: int | None) -> None:
    path = tmp_path / "ratings.dat"
    path.write_text(text, newline="")
    assert count_text_rows(layout(path, "::", quoted=False), 4) == rows


def test_a_quote_is_a_character_where_the_format_has_no_quotes(tmp_path: Path) -> None:
    path = tmp_path / "a.inter"
    path.write_text('a"\tb\t5\n"c\td\t6\n')
    assert count_text_rows(layout(path, "\t", quoted=False)) == 2


def test_a_missing_quote_does_not_read_the_file_into_memory(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b'a,"b,5\n' + (b"c" * 999 + b",d,6\n") * 20_000)
    assert count_text_rows(layout(path)) is None
    first = next(iter(records(layout(path))))
    assert first.number == 1
    assert "are not closed" in str(first.fault)

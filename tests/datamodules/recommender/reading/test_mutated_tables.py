"""Tests that a table with a structural error gives all its rows or a message, never fewer rows silently."""

import csv
import io
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datamodules.recommender.reading.errors import InteractionError
from datamodules.recommender.reading.file_formats import detect_layout
from datamodules.recommender.reading.interactions import read_interactions

Row = tuple[str, str, int]


class Table(NamedTuple):
    """Rows, and the lines that a program has written for them."""

    rows: list[Row]
    lines: list[bytes]  # each with its line end; the first is the header

    @property
    def data(self) -> bytes:
        return b"".join(self.lines)


def read(path: Path, data: bytes) -> list[Row] | None:
    """Rows in the order of the file; None if there was a message, which names the file and is short."""
    path.write_bytes(data)
    try:
        found = read_interactions(detect_layout(path))
    except InteractionError as error:
        assert str(error).startswith(str(path))
        assert len(str(error).splitlines()) <= 3
        return None
    return [
        (found.user_ids[user], found.item_ids[item], time)
        for user, item, time in zip(found.users, found.items, found.times.tolist(), strict=True)
    ]


texts = st.text(st.sampled_from("ab07é -;."), min_size=1, max_size=5).map(lambda text: text.strip() or "x")
times = st.integers(0, 4_000_000_000)


@st.composite
def tables(draw: st.DrawFn, texts: st.SearchStrategy[str] = texts, quote: bool | None = None) -> Table:
    names = draw(st.permutations(["user_id", "item_id", "timestamp", "note"]))
    drawn = draw(st.lists(st.tuples(texts, texts, times, texts), min_size=2, max_size=6))
    every = draw(st.booleans()) if quote is None else quote
    end = draw(st.sampled_from(["\n", "\r\n"]))
    lines = []
    for fields in [("user_id", "item_id", "timestamp", "note"), *drawn]:
        values = dict(zip(("user_id", "item_id", "timestamp", "note"), fields, strict=True))
        file = io.StringIO()
        writer = csv.writer(file, lineterminator=end, quoting=csv.QUOTE_ALL if every else csv.QUOTE_MINIMAL)
        writer.writerow([values[name] for name in names])
        lines.append(file.getvalue().encode())
    if draw(st.booleans()):
        lines[0] = b"\xef\xbb\xbf" + lines[0]
    return Table([(user, item, time) for user, item, time, _ in drawn], lines)


any_text = st.text(st.sampled_from('ab07é,"\n;'), min_size=1, max_size=6)
no_line_breaks = any_text.map(lambda text: "".join(text.split("\n")) or "x")


@settings(max_examples=60, deadline=None)
@given(table=tables(no_line_breaks))
def test_a_correct_table_gives_its_rows(tmp_path_factory: pytest.TempPathFactory, table: Table) -> None:
    assert read(tmp_path_factory.getbasetemp() / "a.csv", table.data) == table.rows


def drop_a_field(table: Table, offset: int) -> bytes:
    line = 1 + offset % len(table.rows)
    return b"".join([*table.lines[:line], table.lines[line].partition(b",")[2], *table.lines[line + 1 :]])


def add_a_field(table: Table, offset: int) -> bytes:
    line = 1 + offset % len(table.rows)
    return b"".join([*table.lines[:line], b"5," + table.lines[line], *table.lines[line + 1 :]])


def add_a_quote(table: Table, offset: int) -> bytes:
    offset %= len(table.data)
    return table.data[:offset] + b'"' + table.data[offset:]


def add_a_comma(table: Table, offset: int) -> bytes:
    header, rows = table.lines[0], b"".join(table.lines[1:]).replace(b'"', b"")  # in quotes it would be text
    offset %= len(rows)
    return header + rows[:offset] + b"," + rows[offset:]


def join_two_lines(table: Table, offset: int) -> bytes:
    line = offset % len(table.rows)
    return b"".join([*table.lines[:line], table.lines[line].rstrip(b"\r\n"), *table.lines[line + 1 :]])


def cut_the_last_line(table: Table, offset: int) -> bytes:
    return table.data[: -1 - offset % (len(table.lines[-1]) - 1)]


def add_a_blank_line(table: Table, offset: int) -> bytes:
    line = offset % (len(table.lines) + 1)
    return b"".join([*table.lines[:line], b"\n", *table.lines[line:]])


def end_lines_with_cr(table: Table, offset: int) -> bytes:
    return table.data.replace(b"\r\n", b"\n").replace(b"\n", b"\r")


def end_a_line_with_cr(table: Table, offset: int) -> bytes:
    line = offset % len(table.lines)
    changed = table.lines[line].rstrip(b"\r\n") + b"\r"
    return b"".join([*table.lines[:line], changed, *table.lines[line + 1 :]])


def add_a_nul(table: Table, offset: int) -> bytes:
    offset %= len(table.data)
    return table.data[:offset] + b"\x00" + table.data[offset:]


@pytest.mark.parametrize(
    "mutate",
    [
        drop_a_field,
        add_a_field,
        add_a_quote,
        add_a_comma,
        join_two_lines,
        cut_the_last_line,
        add_a_blank_line,
        end_lines_with_cr,
        end_a_line_with_cr,
        add_a_nul,
    ],
)
@settings(max_examples=40, deadline=None)
@given(table=tables(), offset=st.integers(0, 10_000))
def test_a_mutated_table_gives_the_same_rows_or_one_message(
    tmp_path_factory: pytest.TempPathFactory, mutate: Callable[[Table, int], bytes], table: Table, offset: int
) -> None:
    assert read(tmp_path_factory.getbasetemp() / "a.csv", mutate(table, offset)) in (table.rows, None)


@settings(max_examples=60, deadline=None)
@given(table=tables(quote=False), offsets=st.tuples(st.integers(0, 10_000), st.integers(0, 10_000)))
def test_a_pair_of_stray_quotes_loses_no_row(
    tmp_path_factory: pytest.TempPathFactory, table: Table, offsets: tuple[int, int]
) -> None:
    """Such a pair can be correct by RFC 4180: a field that starts on one line and ends on a later one."""
    first, second = sorted(offset % len(table.data) for offset in offsets)
    data = table.data[:first] + b'"' + table.data[first:second] + b'"' + table.data[second:]
    found = read(tmp_path_factory.getbasetemp() / "a.csv", data)
    assert found is None or len(found) == len(table.rows)


@pytest.mark.parametrize("row_number", [4, 5, 6, 12])
def test_unescaped_inch_marks_lose_no_row(tmp_path: Path, row_number: int) -> None:
    lines = [f'u{row % 50},"TV, {row}",{1_600_000_000 + row}\n' for row in range(1500)]
    for row in (row_number, row_number + 1100):
        lines[row] = f'u{row % 50},"TV, 32" black",{1_600_000_000 + row}\n'
    (tmp_path / "a.csv").write_text("user_id,item_id,timestamp\n" + "".join(lines))
    with pytest.raises(InteractionError) as caught:
        read_interactions(detect_layout(tmp_path))
    assert str(caught.value) == (
        f"{tmp_path / 'a.csv'}: line {row_number + 2}: "
        f"found ' black\",{1_600_000_000 + row_number}' after the quotes of a field; "
        'write a field with a quote in quotes, and that quote twice ("TV, 32"" black")\n'
        f"Other invalid lines: {row_number + 1102}"
    )

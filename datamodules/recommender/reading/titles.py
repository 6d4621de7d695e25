"""Reads titles of items from the file beside the interactions."""

import csv
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from datamodules.recommender.reading.errors import InteractionError

_CSV_HEADER = ["movieId", "title"]
_SHOWN = 80
"""Characters of a line or a title in a message."""


class _Row(NamedTuple):
    number: int  # line of the file, from 1
    line: str
    fields: list[str]


def read_titles(path: Path, item_column: str = "item_id") -> dict[str, str]:
    """Read titles by original item id.

    Supported are MovieLens' `movies.dat` and `u.item` (UTF-8 or Latin-1), `movies.csv`, and RecBole's `.item`
    (UTF-8). The title of a RecBole file is the first column with "title" in its name, else the column `name`; without
    either there are no titles. Every line has as many fields as the header or, without a header, as the first line.

    Raises:
        InteractionError: a line is invalid, or an item has two titles; the message names file and line.
    """
    if path.name == "movies.dat":
        rows = _split(_iterate_lines(path, is_latin=True), "::")
        # A title may contain the separator; it ends before the genres.
        return _titles(path, rows, 0, slice(1, -1), "::")
    if path.name == "u.item":
        rows = _rows_of_one_length(path, _split(_iterate_lines(path, is_latin=True), "|"))
        return _titles(path, rows, 0, slice(1, 2), "|")
    if path.name == "movies.csv":
        rows = _rows_of_one_length(path, _csv_rows(path))
        header = next(rows, None)
        if header is None or header.fields[:2] != _CSV_HEADER:
            found = "no line" if header is None else f"{header.line[:_SHOWN]!r}"
            raise InteractionError(f"{path}: line 1: found {found}, expected the columns {','.join(_CSV_HEADER)}")
        return _titles(path, rows, 0, slice(1, 2), ",")
    return _recbole(path, item_column)


def _recbole(path: Path, item_column: str) -> dict[str, str]:
    rows = _rows_of_one_length(path, _split(_iterate_lines(path), "\t"))
    first = next(rows, None)
    header = [name.partition(":")[0] for name in first.fields] if first else []
    titled = [column for column, name in enumerate(header) if "title" in name.lower() or name.lower() == "name"]
    # Prefer "movie_title" to "name", in any order of columns.
    titled.sort(key=lambda column: "title" not in header[column].lower())
    item = item_column.partition(":")[0]
    if not titled:
        for _ in rows:  # a damaged header must not hide damaged lines
            pass
        return {}
    if item not in header:
        raise InteractionError(f"{path}: line 1: found the columns {first and first.line[:_SHOWN]!r}, expected {item}")
    return _titles(path, rows, header.index(item), slice(titled[0], titled[0] + 1), "\t")


def _split(lines: Iterable[tuple[int, str]], separator: str) -> Iterator[_Row]:
    return (_Row(number, line, line.split(separator)) for number, line in lines)


def _csv_rows(path: Path) -> Iterator[_Row]:
    """Yield the lines with their fields; a title is on one line."""
    for number, line in _iterate_lines(path):
        try:
            yield _Row(number, line, next(csv.reader([line], strict=True)))
        except csv.Error as error:
            raise InteractionError(
                f"{path}: line {number}: found {line[:_SHOWN]!r} ({error}), expected item id and title; write a title "
                'with a quote in quotes, and that quote twice ("TV, 32"" black")'
            ) from error


def _rows_of_one_length(path: Path, rows: Iterable[_Row]) -> Iterator[_Row]:
    """Yield rows that all have as many fields as the first; a separator within a title splits it into two fields."""
    expected = None
    for row in rows:
        expected = expected or len(row.fields)
        if len(row.fields) != expected:
            raise InteractionError(
                f"{path}: line {row.number}: found {row.line[:_SHOWN]!r}, with {len(row.fields)} fields; expected item "
                f"id and title in {expected} fields, as in the first line"
            )
        yield row


def _titles(path: Path, rows: Iterable[_Row], item: int, title: slice, separator: str) -> dict[str, str]:
    titles: dict[str, str] = {}
    for number, line, fields in rows:
        if len(fields) <= item or not fields[title]:
            raise InteractionError(
                f"{path}: line {number}: found {line[:_SHOWN]!r}, expected item id and title with {separator!r} between"
            )
        found = separator.join(fields[title])
        if titles.setdefault(fields[item], found) != found:
            pair = f"{titles[fields[item]][:_SHOWN]!r} and {found[:_SHOWN]!r}"
            raise InteractionError(
                f"{path}: line {number}: found two titles of item {fields[item][:_SHOWN]!r}, {pair}; expected one line "
                "for each item"
            )
    if not titles:
        raise InteractionError(f"{path}: found no item, expected item id and title on each line")
    return titles


def _iterate_lines(path: Path, is_latin: bool = False) -> Iterator[tuple[int, str]]:
    """Yield the lines that are not blank, with their numbers from 1.

    Args:
        path: the file.
        is_latin: whether text that is not UTF-8 is Latin-1, as in MovieLens 100K and 1M; MovieLens 10M is UTF-8.
    """
    data = path.read_bytes()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if not is_latin:
            raise InteractionError(f"{path}: byte {error.start} is not UTF-8; convert the file to UTF-8") from error
        text = data.decode("latin-1")
    # splitlines() would also split at rare line separators, which a title may contain.
    for number, line in enumerate(text.split("\n"), start=1):
        if "\r" in line.removesuffix("\r"):
            raise InteractionError(f"{path}: line {number}: found a carriage return; expected lines that end with LF")
        if line.strip():
            yield number, line.removesuffix("\r")

"""Items' titles from the file beside the interactions: one dictionary from the source's item id to a title."""

import csv
from collections.abc import Iterable
from pathlib import Path

from datamodules.recommender.formats import InteractionError


def read_titles(path: Path, item_column: str = "item_id") -> dict[str, str]:
    """Titles by original item id.

    Known are MovieLens' ``movies.dat`` and ``u.item`` (latin-1), ``movies.csv``, and RecBole's ``.item`` (UTF-8), whose
    title is the first column with "title" in its name, else the one called ``name``; without either there are none.

    Raises:
        InteractionError: names file and line.
    """
    if path.name == "movies.dat":
        # A title may hold anything but ends before the genres.
        return _pairs(path, ((line, line.split("::")) for line in _lines(path, "latin-1")), 0, slice(1, -1), "::")
    if path.name == "u.item":
        return _pairs(path, ((line, line.split("|")) for line in _lines(path, "latin-1")), 0, slice(1, 2), "|")
    if path.name == "movies.csv":
        rows = list(csv.reader(_lines(path, "utf-8-sig")))[1:]
        return _pairs(path, ((",".join(row), row) for row in rows), 0, slice(1, 2), ",", first=2)
    return _recbole(path, item_column)


def _recbole(path: Path, item_column: str) -> dict[str, str]:
    lines = _lines(path, "utf-8-sig")
    header = [name.partition(":")[0] for name in lines[0].split("\t")] if lines else []
    titled = [place for place, name in enumerate(header) if "title" in name.lower() or name.lower() == "name"]
    # "movie_title" before a mere "name", wherever it stands.
    titled.sort(key=lambda place: "title" not in header[place].lower())
    item = item_column.partition(":")[0]
    if not titled or item not in header:
        return {}
    rows = ((line, line.split("\t")) for line in lines[1:])
    return _pairs(path, rows, header.index(item), slice(titled[0], titled[0] + 1), "\t", first=2)


def _pairs(
    path: Path, rows: Iterable[tuple[str, list[str]]], item: int, title: slice, separator: str, first: int = 1
) -> dict[str, str]:
    titles = {}
    for number, (line, fields) in enumerate(rows, start=first):
        if len(fields) <= item or not fields[title]:
            raise InteractionError(
                f"{path}: line {number}: found {line[:80]!r}, expected item id and title with {separator!r} between"
            )
        titles[fields[item]] = separator.join(fields[title])
    return titles


def _lines(path: Path, encoding: str) -> list[str]:
    try:
        # Not splitlines(): a title may hold one of the rarer line separators.
        return [line.rstrip("\r") for line in path.read_text(encoding).split("\n") if line.strip()]
    except UnicodeDecodeError as error:
        raise InteractionError(f"{path}: byte {error.start} is not {encoding}; convert the file to UTF-8") from error

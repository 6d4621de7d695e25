"""Titles of items: movies.dat, u.item, movies.csv, RecBole's .item. References: str.split and the csv module."""

import csv
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

from tests.fuzz.mutations.tables import table_mutation
from tests.fuzz.reader import Input, InvalidInput, Reader

_SEPARATORS = {"movies.dat": "::", "u.item": "|", "movies.csv": ",", "small.item": "\t"}
_LATIN = ("movies.dat", "u.item")


class Titles(Reader):
    """{item: title}."""

    def seeds(self) -> Sequence[Input]:
        dat = "1::Toy Story (1995)::Animation|Comedy\n2::Amélie: a::b (2001)::Comedy\n10::Heat (1995)::Crime\n"
        item = "".join(f"{n}|Film {n} (1995)|01-Jan-1995||http://x/{n}|0|1\n" for n in (1, 2, 30))
        table = 'movieId,title,genres\n1,Heat (1995),Crime\n2,"Amélie, a film (2001)",Comedy\n3,"""Q"" (1999)",Drama\n'
        recbole = "item_id:token\tname:token\tmovie_title:token_seq\n1\tx\tHeat\n2\ty\tAmélie é\n"
        return [
            Input("movies.dat", dat.encode("latin-1")),
            Input("u.item", item.encode()),
            Input("movies.csv", table.encode()),
            Input("small.item", recbole.encode()),
        ]

    def restructure(self, random: Random, data: bytes) -> bytes:
        separator = next((mark for mark in (b"::", b"|", b"\t") if mark in data), b",")
        return table_mutation(separator)(random, data)

    def read(self, path: Path) -> Any:
        from datamodules.recommender.reading.titles import read_titles

        return read_titles(path, "item_id:token")

    def reference(self, path: Path) -> Any:
        data = path.read_bytes()
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            if path.name not in _LATIN:
                raise InvalidInput("it is not UTF-8") from error
            text = data.decode("latin-1")
        lines = [line.removesuffix("\r") for line in text.split("\n")]
        if any("\r" in line for line in lines):
            raise InvalidInput("a carriage return is inside a line")
        rows = [_fields(line, path.name) for line in lines if line.strip()]
        lengths = {len(row) for row in rows}
        item, title = 0, slice(1, -1 if path.name == "movies.dat" else 2)
        if path.name == "movies.csv":
            if not rows or rows.pop(0)[:2] != ["movieId", "title"]:
                raise InvalidInput("it has another header")
        elif path.name == "small.item":
            header = [name.partition(":")[0] for name in rows.pop(0)] if rows else []
            titled = [name for name in header if "title" in name.lower()]
            titled += [name for name in header if name.lower() == "name"]
            if not titled:
                return {}  # the reader looks no further
            if "item_id" not in header:
                raise InvalidInput("it has no item_id")
            item, index = header.index("item_id"), header.index(titled[0])
            title = slice(index, index + 1)
        if path.name != "movies.dat" and len(lengths) > 1:
            raise InvalidInput("lines have different numbers of fields")
        found: dict[str, str] = {}
        for row in rows:
            if not row[title] or found.setdefault(row[item], _joined(row[title], path)) != _joined(row[title], path):
                raise InvalidInput("a line has no title, or an item has two")
        if not found:
            raise InvalidInput("there is no item")
        return found


READERS = {"titles": Titles}


def _fields(line: str, name: str) -> list[str]:
    if name != "movies.csv":
        return line.split(_SEPARATORS[name])
    try:
        return next(csv.reader([line], strict=True))
    except csv.Error as error:
        raise InvalidInput(f"the csv module finds {error}") from error


def _joined(fields: list[str], path: Path) -> str:
    return _SEPARATORS[path.name].join(fields)

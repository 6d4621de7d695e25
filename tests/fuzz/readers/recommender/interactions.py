"""Interactions: CSV, TSV, ratings.dat and Parquet. The references are str.split, the csv module and pyarrow."""

import csv
import io
import math
import re
from collections.abc import Sequence
from datetime import date, datetime, timezone
from pathlib import Path
from random import Random
from typing import Any

from tests.fuzz.mutations.parquet_tables import parquet_bytes, restructured_parquet
from tests.fuzz.mutations.tables import table_mutation
from tests.fuzz.reader import Input, InvalidInput, Reader, Unknown, text_of

Rows = list[tuple[str, str, int]]

_COLUMNS = {
    "table.csv": ("user_id", "item_id", "timestamp"),
    "quoted.csv": ("user", "item", "time"),
    "crlf.csv": ("user", "item", "ts"),
    "table.tsv": ("user", "item", "timestamp"),
    "small.inter": ("user_id", "item_id", "timestamp"),
    "integers.parquet": ("user_id", "item_id", "timestamp"),
    "dates.csv": ("user", "item", "date"),
    "untimed.csv": ("user", "item", ""),
    "papers.txt": ("user", "item", ""),
    "texts.parquet": ("user", "item", "time"),
    "floats.parquet": ("user", "item", "ts"),
}
"""Columns of user, item and time that the config names; the other formats have fixed columns."""
_MOVIELENS = ["userId", "movieId", "rating", "timestamp"]
_FIXED = ("userId", "movieId", "timestamp")
_NUMBER = re.compile(r"[ \t]*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)? *", re.ASCII)
_INTEGER = re.compile(r"\s*[+-]?\d{1,18}", re.ASCII)
_LATEST = 7_258_118_400
_EVENTS = [(user, item, 978300000 + 100 * user + item) for user in range(1, 5) for item in range(1, 6 + user % 2)]


class Interactions(Reader):
    """Reads a file with the functions of `prepare_store`."""

    def read(self, path: Path) -> Rows:
        from datamodules.recommender.reading.file_formats import detect_layout
        from datamodules.recommender.reading.interactions import read_interactions

        chosen = () if path.suffix == ".txt" else _COLUMNS.get(path.name, ())
        named = dict(zip(("user_column", "item_column", "time_column"), chosen, strict=False))
        found = read_interactions(detect_layout(path, **named))
        users, items = [found.user_ids[code] for code in found.users], [found.item_ids[code] for code in found.items]
        return list(zip(users, items, found.times.tolist(), strict=True))

    def reference(self, path: Path) -> Rows:
        text = text_of(path)
        first = text.split("\n", 1)[0].rstrip("\r")
        if path.name == "ratings.dat":
            return rows_of([_MOVIELENS, *split_lines(text, "::")], _FIXED, integer=True)
        if path.name == "u.data":
            return rows_of([_MOVIELENS, *split_lines(text, "\t")], _FIXED, integer=True)
        if path.name == "ratings.csv":
            if first.split(",") != _MOVIELENS:
                raise Unknown("a table whose columns the reader chooses by their names")
            return rows_of(split_lines(text, ","), _FIXED, integer=True)
        if path.suffix == ".inter":
            return rows_of(split_lines(text, "\t"), _COLUMNS[path.name])
        if path.suffix == ".txt":
            if not re.fullmatch(r"\d+ \d+", first, re.ASCII):
                raise Unknown("another of the papers' formats, or a table")
            return rows_of([["user", "item"], *split_lines(text, " ")], _COLUMNS[path.name], integer=True)
        if "\r" in text.replace("\r\n", ""):
            raise Unknown("a carriage return alone ends a line for some programs and not for others")
        separator = max(",\t;|", key=first.count)
        try:
            lines = list(csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True))
            return rows_of(lines, _COLUMNS[path.name])
        except csv.Error as error:
            raise InvalidInput(f"the csv module finds {error}") from error


class Csv(Interactions):
    """Tables with commas and semicolons, with and without quotes; MovieLens' ratings.csv."""

    def seeds(self) -> Sequence[Input]:
        plain = "user_id,item_id,timestamp\n" + "".join(f"u{u},i{i},{t}\n" for u, i, t in _EVENTS)
        quoted = 'review;"user";"item";time\n' + "".join(f'"a;""b"" {i}";"u {u}";i{i};{t}.5\n' for u, i, t in _EVENTS)
        movies = ",".join(_MOVIELENS) + "\n" + "".join(f"{u},{i},4.5,{t}\n" for u, i, t in _EVENTS)
        unended = "item,user,ts,extra\r\n" + "\r\n".join(f"{i},{u},{t},x" for u, i, t in _EVENTS)
        dates = "user,item,date,note\n" + "".join(
            f'{u},i{i},{datetime.fromtimestamp(t, timezone.utc).isoformat()},"a\nb"\n' for u, i, t in _EVENTS
        )
        named = {"table.csv": plain, "quoted.csv": quoted, "ratings.csv": movies, "crlf.csv": unended}
        named |= {"dates.csv": dates, "untimed.csv": "user,item\n" + "".join(f"{u},{i}\n" for u, i, _ in _EVENTS)}
        return [Input(name, text.encode()) for name, text in named.items()]

    def restructure(self, random: Random, data: bytes) -> bytes:
        return table_mutation(b";" if b";" in data else b",")(random, data)


class Tsv(Interactions):
    """Tables with tabs, RecBole's .inter and MovieLens' u.data."""

    def seeds(self) -> Sequence[Input]:
        plain = "user\titem\ttimestamp\n" + "".join(f"u{u}\ti{i}\t{t}\n" for u, i, t in _EVENTS)
        atomic = "user_id:token\titem_id:token\trating:float\ttimestamp:float\n" + "".join(
            f"{u}\t00{i}\t3\t{t}\n" for u, i, t in _EVENTS
        )
        hundred = "".join(f"{u}\t{i}\t3\t{t}\n" for u, i, t in _EVENTS)
        papers = "".join(f"{u} {i}\n" for u, i, _ in _EVENTS)
        named = {"table.tsv": plain, "small.inter": atomic, "u.data": hundred, "papers.txt": papers}
        return [Input(name, text.encode()) for name, text in named.items()]

    def restructure(self, random: Random, data: bytes) -> bytes:
        return table_mutation(b"\t")(random, data)


class Ratings(Interactions):
    """MovieLens' ratings.dat."""

    def seeds(self) -> Sequence[Input]:
        return [Input("ratings.dat", "".join(f"{u}::{i}::5::{t}\n" for u, i, t in _EVENTS).encode())]

    def restructure(self, random: Random, data: bytes) -> bytes:
        return table_mutation(b"::")(random, data)


class Parquet(Interactions):
    """Parquet tables; the reference is pyarrow, which shares no code with polars."""

    def seeds(self) -> Sequence[Input]:
        users, items, times = (list(column) for column in zip(*_EVENTS, strict=True))
        dates = [datetime.fromtimestamp(time, timezone.utc) for time in times]
        tables: dict[str, dict[str, Any]] = {
            "integers.parquet": {"user_id": users, "item_id": items, "timestamp": times},
            "texts.parquet": {"user": [f"u{u}" for u in users], "item": [f"i {i}" for i in items], "time": dates},
            "floats.parquet": {
                "user": users,
                "text": ["é"] * len(users),
                "item": items,
                "ts": [t + 0.5 for t in times],
            },
        }
        return [Input(name, parquet_bytes(columns)) for name, columns in tables.items()]

    def mutate(self, random: Random, seed: Input) -> Input:
        if random.random() < 0.5:
            return super().mutate(random, seed)
        return seed._replace(data=restructured_parquet(random, seed.data))

    def reference(self, path: Path) -> Rows:
        import pyarrow
        import pyarrow.parquet

        try:
            data = io.BytesIO(path.read_bytes())
            names = pyarrow.parquet.read_metadata(data).schema.names
            _indices(names, _COLUMNS[path.name])
            table = pyarrow.parquet.read_table(data, columns=list(_COLUMNS[path.name]), use_threads=False)
            columns = [table.column(name).to_pylist() for name in _COLUMNS[path.name]]
        except (pyarrow.ArrowException, OSError, ValueError, OverflowError):
            # Polars may read around a corrupt part that it does not need: then the rows equal the rows of the seed.
            return _seed_rows(path.name)
        return [(_id(user), _id(item), _seconds(time)) for user, item, time in zip(*columns, strict=True)]


READERS = {"csv": Csv, "tsv": Tsv, "ratings": Ratings, "parquet": Parquet}


def split_lines(text: str, separator: str) -> list[list[str]]:
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    elif separator == "::":
        raise InvalidInput("its last line has no end")
    return [line.rstrip("\r").split(separator) for line in lines]


def rows_of(lines: list[list[str]], columns: Sequence[str], integer: bool = False) -> Rows:
    header = lines[0] if lines else []
    indices = _indices(header, columns)
    if len(lines) < 2:
        raise InvalidInput("it has no row")
    rows = []
    for number, fields in enumerate(lines[1:], 1):
        if len(fields) != len(header):
            raise InvalidInput(f"row {number} has {len(fields)} fields, the header {len(header)}")
        user, item, time = ("0" if index is None else fields[index] for index in indices)
        if not user.strip() or not item.strip():
            raise InvalidInput(f"row {number} has an empty id")
        if integer and not (_INTEGER.fullmatch(user) and _INTEGER.fullmatch(item)):
            raise InvalidInput(f"row {number} has an id that is no integer")
        ids = (str(int(user)), str(int(item))) if integer else (user, item)
        rows.append((*ids, _seconds(_time(time))))
    return rows


def _seed_rows(name: str) -> Rows:
    ids = [(f"u{u}", f"i {i}") if name == "texts.parquet" else (str(u), str(i)) for u, i, _ in _EVENTS]
    return [(*pair, time) for pair, (_, _, time) in zip(ids, _EVENTS, strict=True)]


def _indices(header: list[str], columns: Sequence[str]) -> list[int | None]:
    """Return the index of each column; None for the times of a file without times."""
    plain = [name.partition(":")[0] for name in header]
    if not {*columns} <= {*plain, *header, ""} or len(set(header)) < len(header):
        raise InvalidInput(f"its columns are {header}"[:200])
    indices = [header.index(column) if column in header else plain.index(column) for column in columns if column]
    return [*indices, *[None] * (len(columns) - len(indices))]


def _time(text: str) -> Any:
    if _NUMBER.fullmatch(text):
        return float(text)
    try:
        return datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError as error:
        raise InvalidInput(f"it has the time {text[:40]!r}") from error


def _id(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | str) or not str(value).strip():
        raise InvalidInput(f"it has the id {value!r}"[:200])
    return str(value)


def _seconds(time: Any) -> int:
    if isinstance(time, datetime):
        time = (time if time.tzinfo else time.replace(tzinfo=timezone.utc)).timestamp()
    elif isinstance(time, date):
        time = datetime(time.year, time.month, time.day, tzinfo=timezone.utc).timestamp()
    if isinstance(time, bool) or not isinstance(time, int | float) or not 0 <= time <= _LATEST:
        raise InvalidInput(f"it has the time {time!r}"[:200])
    return math.floor(time)

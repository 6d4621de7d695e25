"""Interactions with event features: CSV, TSV, RecBole's .inter and Parquet. The reference is the csv module."""

import csv
import io
import math
import re
from collections.abc import Sequence
from pathlib import Path
from random import Random

from tests.fuzz.mutations.parquet_tables import parquet_bytes, restructured_parquet
from tests.fuzz.mutations.tables import table_mutation
from tests.fuzz.reader import Input, InvalidInput, Reader, Unknown, text_of
from tests.fuzz.readers.recommender.interactions import rows_of, split_lines

_NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*", re.ASCII)
_IDS = ("user_id", "item_id", "timestamp")
_HEADER = (*_IDS, "device", "price")
_MISSING = -1e300
_EVENTS = [
    (f"u{user}", f"i{item}", 978300000 + 100 * user + item) for user in range(1, 5) for item in range(1, 6 + user % 2)
]
_FEATURES = [
    (("phone", "", "é x", "7", "007")[index % 5], ("3.5", "", "-2e3", "0")[index % 4]) for index in range(len(_EVENTS))
]

Rows = list[tuple[str, str, int, str, float]]
"""User, item, time, device ("" where missing) and price (-1e300 where missing) of each row."""


class EventTables(Reader):
    """Text files."""

    def seeds(self) -> Sequence[Input]:
        cells = [[*map(str, event), *features] for event, features in zip(_EVENTS, _FEATURES, strict=True)]
        turned = [list(_HEADER[::-1]), *(row[::-1] for row in cells)]
        types = ("token", "token", "float", "token", "float")
        atomic = [[f"{name}:{kind}" for name, kind in zip(_HEADER, types, strict=True)], *cells]
        named = {
            "events.csv": _text([list(_HEADER), *cells], ","),
            "turned.csv": _text(turned, ","),  # the user is the last column
            "events.tsv": _text([[*_HEADER[:4], "note", "price"], *([*row[:4], "x", row[4]] for row in cells)], "\t"),
            "quoted.csv": "".join(";".join(f'"{cell}"' for cell in row) + "\r\n" for row in [list(_HEADER), *cells]),
            "shop.inter": _text(atomic, "\t"),
        }
        return [Input(name, text.encode()) for name, text in named.items()]

    def restructure(self, random: Random, data: bytes) -> bytes:
        return table_mutation(next((mark for mark in (b"\t", b";") if mark in data), b","))(random, data)

    def read(self, path: Path) -> Rows:
        from datamodules.recommender.features.event_feature_settings import EventFeatures
        from datamodules.recommender.features.event_reader import read_event_columns
        from datamodules.recommender.reading.file_formats import detect_layout
        from datamodules.recommender.reading.interactions import read_interactions

        layout = detect_layout(path, user_column=_IDS[0], item_column=_IDS[1], time_column=_IDS[2])
        found = read_interactions(layout)
        features = read_event_columns(layout, EventFeatures(["device"], ["price"]), len(found.users))
        names = ("", *features.categories[0])
        devices = [names[code] for code in features.codes[:, 0]]
        prices = [_MISSING if math.isnan(number) else number for number in features.numbers[:, 0].tolist()]
        users, items = [found.user_ids[code] for code in found.users], [found.item_ids[code] for code in found.items]
        return list(zip(users, items, found.times.tolist(), devices, prices, strict=True))

    def reference(self, path: Path) -> Rows:
        text = text_of(path)
        if path.suffix == ".inter":
            return _rows(split_lines(text, "\t"))
        if "\r" in text.replace("\r\n", ""):
            raise Unknown("a carriage return alone ends a line for some programs and not for others")
        first = text.split("\n", 1)[0].rstrip("\r")
        separator = max(",\t;|", key=first.count)
        try:
            return _rows(list(csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)))
        except csv.Error as error:
            raise InvalidInput(f"the csv module finds {error}") from error


class EventTablesParquet(EventTables):
    """Parquet files, some with a column that is missing, renamed, of another type or with a strange value."""

    def seeds(self) -> Sequence[Input]:
        columns = dict(zip(_HEADER, map(list, zip(*_EVENTS, strict=True)), strict=False))
        columns["device"] = [device or None for device, _ in _FEATURES]
        columns["price"] = [float(price) if price else None for _, price in _FEATURES]
        return [Input("events.parquet", parquet_bytes(columns))]

    def mutate(self, random: Random, seed: Input) -> Input:
        if random.random() < 0.5:
            return super().mutate(random, seed)
        return seed._replace(data=restructured_parquet(random, seed.data))

    def restructure(self, random: Random, data: bytes) -> bytes:
        return data

    def reference(self, path: Path) -> Rows:
        raise Unknown("a Parquet file has no checksums of its values, so changed bytes may be other valid rows")


READERS = {"event_tables": EventTables, "event_tables_parquet": EventTablesParquet}


def _text(rows: list[list[str]], separator: str) -> str:
    return "".join(separator.join(row) + "\n" for row in rows)


def _rows(lines: list[list[str]]) -> Rows:
    plain = [name.partition(":")[0] for name in lines[0]] if lines else []
    if plain.count("device") != 1 or plain.count("price") != 1:
        raise InvalidInput("it has not each column once")
    events = rows_of(lines, _IDS)
    found: Rows = []
    for event, fields in zip(events, lines[1:], strict=True):
        device, price = fields[plain.index("device")].strip(), fields[plain.index("price")]
        if price.strip() and not (_NUMBER.fullmatch(price) and math.isfinite(float(price))):
            raise InvalidInput(f"it has the price {price[:40]!r}")
        found.append((*event, device, float(price) if price.strip() else _MISSING))
    return found

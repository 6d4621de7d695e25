"""Tables of item features: CSV, TSV, RecBole's .item and Parquet. The references are the csv module and pyarrow."""

import csv
import io
import math
import re
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from tests.fuzz.mutations.tables import table_mutation
from tests.fuzz.reader import Input, InvalidInput, Reader, Unknown, text_of

_NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*", re.ASCII)
_ROWS = [("007", "Drama|War", "3.5", "1999"), ("7", "", "", "2001"), ("é x", "War", "-2e3", ""), ("8", "a b", "0", "1")]

Rows = list[tuple[str, tuple[str, ...], list[float], list[float]]]
"""Id, categories, numbers (-1e300 where missing) and vector of each row."""


class ItemTables(Reader):
    """Text files."""

    vector: str | None = None

    def seeds(self) -> Sequence[Input]:
        header = "item_id,genres,price,year,title"
        plain = "\n".join([header, *(",".join([*row, "x"]) for row in _ROWS), ""])
        quoted = "\r\n".join(
            [header.replace(",", ";"), *(";".join(f'"{cell}"' for cell in (*row, 'a;""b""\n')) for row in _ROWS), ""]
        )
        atomic = "\n".join(["item_id:token\tgenres:token_seq\tprice:float\tyear:float", *map("\t".join, _ROWS), ""])
        return [
            Input("items.csv", plain.encode()),
            Input("quoted.csv", quoted.encode()),
            Input("items.tsv", plain.replace(",", "\t").encode()),
            Input("shop.item", atomic.encode()),
        ]

    def restructure(self, random: Random, data: bytes) -> bytes:
        return table_mutation(next((mark for mark in (b"\t", b";") if mark in data), b","))(random, data)

    def read(self, path: Path) -> Rows:
        from datamodules.recommender.features.item_feature_settings import ItemFeatures
        from datamodules.recommender.features.item_reader import read_item_table

        settings = ItemFeatures(
            item_column="item_id", categories=["genres"], numbers=["price", "year"], vector=self.vector
        )
        table = read_item_table(path, settings)
        columns = table.categories["genres"], _plain(table.numbers), _plain(table.vectors)
        return list(zip(table.ids, *columns, strict=True))

    def reference(self, path: Path) -> Rows:
        text = text_of(path)
        if "\r" in text.replace("\r\n", ""):
            raise Unknown("a carriage return alone ends a line for some programs and not for others")
        first = text.split("\n", 1)[0].rstrip("\r")
        if path.suffix == ".item":
            rows = [line.removesuffix("\r").split("\t") for line in text.removesuffix("\n").split("\n")]
        else:
            separator = max(",\t;|", key=first.count)
            try:
                rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True))
            except csv.Error as error:
                raise InvalidInput(f"the csv module finds {error}") from error
        return _rows(rows)


class ItemTablesParquet(ItemTables):
    """Parquet files; the reference is pyarrow, which shares no code with polars."""

    vector = "text"

    def seeds(self) -> Sequence[Input]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        file = io.BytesIO()
        columns = {
            "item_id": [row[0] for row in _ROWS],
            "genres": [row[1] or None for row in _ROWS],
            "price": [float(row[2]) if row[2] else None for row in _ROWS],
            "year": [1999, None, 2001, 5],
            "text": pa.array([[1.0, 2.0], None, [0.5, -1.0], [0.0, 0.0]], pa.list_(pa.float32())),
        }
        pq.write_table(pa.table(columns), file)
        return [Input("items.parquet", file.getvalue())]

    def restructure(self, random: Random, data: bytes) -> bytes:
        return data

    def reference(self, path: Path) -> Rows:
        raise Unknown("a Parquet file has no checksums of its values, so changed bytes may be other valid rows")


READERS = {"item_tables": ItemTables, "item_tables_parquet": ItemTablesParquet}


def _plain(values: Any) -> list[list[float]]:
    found: list[list[float]] = np.where(np.isnan(values), -1e300, values.astype(np.float64)).tolist()
    return found


def _rows(rows: list[list[str]]) -> Rows:
    if not rows or any(len(row) != len(rows[0]) for row in rows):
        raise InvalidInput("lines have different numbers of fields")
    names = [name.partition(":")[0] for name in rows[0]]
    if {"item_id", "genres", "price", "year"} - {*names} or len({*names}) < len(names):
        raise InvalidInput("it has not each column once")
    item, genres, *numbered = (names.index(name) for name in ("item_id", "genres", "price", "year"))
    found: Rows = []
    for row in rows[1:]:
        if not row[item].strip() or "\n" in row[item] or any(row[item] == other[0] for other in found):
            raise InvalidInput("an id is empty, has a line break or occurs twice")
        if any("\x00" in cell for cell in row):
            raise InvalidInput("it has a NUL byte")
        cells = [row[column] for column in numbered]
        if any(cell.strip() and not (_NUMBER.fullmatch(cell) and math.isfinite(float(cell))) for cell in cells):
            raise InvalidInput("a number is none")
        categories = tuple(sorted({part.strip() for part in row[genres].split("|")} - {""}))
        found.append((row[item], categories, [float(cell) if cell.strip() else -1e300 for cell in cells], []))
    if not found:
        raise InvalidInput("it has no row")
    return found

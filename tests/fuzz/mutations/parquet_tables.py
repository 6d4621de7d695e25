"""Writes Parquet tables, and mutates their columns."""

import io
import math
from datetime import date
from random import Random
from typing import Any


def parquet_bytes(columns: dict[str, Any], row_group_size: int = 10) -> bytes:
    """Return a Parquet file of these columns."""
    import pyarrow
    import pyarrow.parquet

    file = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(columns), file, row_group_size=row_group_size)
    return file.getvalue()


def restructured_parquet(random: Random, data: bytes) -> bytes:
    """Return a whole table in which a column is missing, doubled, renamed, of another type, or has a strange value."""
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(io.BytesIO(data), use_threads=False)
    columns = {name: column.to_pylist() for name, column in zip(table.column_names, table.columns, strict=True)}
    name = random.choice(list(columns))
    size, kind = len(columns[name]), random.randrange(7)
    if kind == 0:
        del columns[name]
    elif kind == 1:
        columns[random.choice((name.upper(), "timestamp", "", "item_id", "x"))] = columns.pop(name)
    elif kind == 2:
        columns[name][random.randrange(size)] = None
    elif kind == 3:
        columns[name] = random.choice(([None] * size, [True] * size, [[1]] * size, [b"\xff"] * size, [{"a": 1}] * size))
    elif kind == 4:
        columns[name] = random.choice(([1.5] * size, [-1] * size, [2**62] * size, [math.nan] * size, [" "] * size))
    elif kind == 5:
        columns = {key: values[:0] for key, values in columns.items()}
    else:
        columns[name] = [date(2024, 1, 1)] * size
    return parquet_bytes(columns)

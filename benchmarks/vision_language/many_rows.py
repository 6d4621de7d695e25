"""Writes large Parquet files of chats about small images quickly."""

import io
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.compute
import pyarrow.parquet
from PIL import Image

_DISTINCT = 4000
_AT_ONCE = 50_000  # rows
_EDGE = 16  # pixels


def write_many_rows(path: Path, rows: int, group_rows: int) -> Path:
    """Write a file in minimind-v's format, in which every row contains its index; about 1 kB per row.

    Args:
        path: the file.
        rows: number of rows.
        group_rows: rows per row group.
    """
    random = np.random.default_rng(0)
    images = pyarrow.array([_noise(random) for _ in range(min(_DISTINCT, rows))], pyarrow.binary())
    schema = pyarrow.schema([("conversations", pyarrow.string()), ("image_bytes", pyarrow.binary())])
    # Without a dictionary, which would store the few different images once; real files have different images.
    with pyarrow.parquet.ParquetWriter(path, schema, use_dictionary=False) as writer:
        waiting: list[pyarrow.Table] = []
        for start in range(0, rows, _AT_ONCE):
            numbers = np.arange(start, min(start + _AT_ONCE, rows))
            # Written once a row group is complete: the writer makes a new group at each call.
            waiting.append(pyarrow.table([_chats(numbers), images.take(numbers % len(images))], schema))
            if sum(map(len, waiting)) >= group_rows or numbers[-1] + 1 == rows:
                writer.write_table(pyarrow.concat_tables(waiting), row_group_size=group_rows)
                waiting = []
    return path


def _chats(numbers: np.ndarray) -> pyarrow.Array:
    digits = pyarrow.array(numbers).cast(pyarrow.string())
    parts = ('[{"role": "user", "content": "<image>\\nWhat is ', '?"}, {"role": "assistant", "content": "', '"}]')
    return pyarrow.compute.binary_join_element_wise(parts[0], digits, parts[1], digits, parts[2], "")


def _noise(random: np.random.Generator) -> bytes:
    file = io.BytesIO()
    Image.fromarray(random.integers(0, 256, (_EDGE, _EDGE, 3), np.uint8)).save(file, "PNG")
    return file.getvalue()

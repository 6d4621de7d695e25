"""Tests that a file that is not UTF-8 text is recognised before it is parsed, as a table and as histories."""

import gzip
import io
import lzma
import zipfile
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from datamodules.recommender.reading.errors import InteractionError
from datamodules.recommender.reading.file_formats import detect_layout
from datamodules.recommender.reading.interactions import read_interactions
from datamodules.recommender.reading.predict_histories import read_histories

TABLE = b"user_id,item_id,timestamp\na,x,1600000000\n"


def zipped(data: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a.csv", data)
    return file.getvalue()


def parquet() -> bytes:
    file = io.BytesIO()
    columns = {"user_id": ["a", "b"] * 50, "item_id": [1, 2] * 50, "timestamp": [1_600_000_000] * 100}
    pl.DataFrame(columns).write_parquet(file)
    return file.getvalue()


def as_table(path: Path) -> object:
    return read_interactions(detect_layout(path))


def as_histories(path: Path) -> object:
    return read_histories(path, ["x"])


@pytest.mark.parametrize("read", [as_table, as_histories])
@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (gzip.compress(TABLE, mtime=0), "the file is a gzip file, expected text in UTF-8; unpack it with gunzip"),
        (zipped(TABLE), "the file is a zip archive or a spreadsheet"),
        (lzma.compress(TABLE), "the file is an xz file"),
        (parquet(), "the file is a Parquet file, .*give it the ending .parquet"),
        (TABLE.decode().encode("utf-16"), "the file is text in UTF-16, .*iconv"),
        (TABLE.decode().encode("utf-16-le"), "line 1: found a NUL byte"),
        (TABLE.replace(b"\n", b"\r"), "line 1: found lines that end with CR alone"),
        (TABLE.replace(b"\n", b"\r", 1), "line 1: found lines that end with CR alone"),
        (b"a" * 70_000, "line 1: "),
        (b"\x00\x01\x02\n", "line 1: found a NUL byte"),
    ],
)
def test_another_content_type_is_named_with_a_remedy(
    tmp_path: Path, read: Callable[[Path], object], data: bytes, expected: str
) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(data)
    with pytest.raises(InteractionError, match=expected) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert len(str(caught.value).splitlines()) <= 3


def test_parquet_that_is_cut_or_corrupt_ends_with_a_message(tmp_path: Path) -> None:
    data, path = parquet(), tmp_path / "a.parquet"
    footer = len(data) - 500
    cut = [data[:-10], data[: len(data) // 2], data[:100] + data[-400:]]
    corrupt = [data[:offset] + b"\xff" * 20 + data[offset + 20 :] for offset in range(footer, footer + 480, 40)]
    refused = 0
    for changed in cut + corrupt:
        path.write_bytes(changed)
        try:
            assert len(read_interactions(detect_layout(path)).users) == 100, "no row is missing"
        except InteractionError as error:
            refused += 1
            assert str(error).startswith(f"{path}: ")
            assert len(str(error).splitlines()) == 1
    assert refused > len(cut)

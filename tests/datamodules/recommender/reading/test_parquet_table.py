"""Tests that a Parquet table of several files is read in the order of their names."""

import shutil
from pathlib import Path

import polars as pl
import pytest

from datamodules.recommender.reading.errors import InteractionError
from datamodules.recommender.reading.file_formats import detect_layout
from datamodules.recommender.reading.interactions import read_interactions
from datamodules.recommender.reading.parquet_table import find_parts

SPARK = "part-{:05}-5f0c3a1e-9b7d-4c55-8a36-0d1f2e3a4b5c-c000.snappy.parquet"


def write(path: Path, users: list[str], **columns: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {"user_id": users, "item_id": ["x"] * len(users), "timestamp": list(range(len(users)))}
    pl.DataFrame(content | columns).write_parquet(path)


@pytest.mark.parametrize(
    "names",
    [
        ["part.0.parquet", "part.9.parquet", "part.10.parquet"],  # Dask
        [SPARK.format(number) for number in (0, 1, 2)],
        ["0_000000_000000.parquet", "1_000000_000000.parquet"],  # Ray
        ["day=1/" + SPARK.format(0), "day=2/" + SPARK.format(0), "day=2/" + SPARK.format(1)],
        ["country=de/part-0.parquet", "country=fr/part-0.parquet"],
    ],
)
def test_parts_are_read_in_order(tmp_path: Path, names: list[str]) -> None:
    for number, name in enumerate(names):
        write(tmp_path / name, [f"u{number}", "shared"])
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / ".part-0.parquet.crc").write_bytes(b"crc")
    write(tmp_path / "_temporary/part-0.parquet", ["not a row"])
    layout = detect_layout(tmp_path)
    assert [path.relative_to(tmp_path).as_posix() for path in layout.parts] == names
    rows = read_interactions(layout)
    assert rows.user_ids == ["u0", "shared", *(f"u{number}" for number in range(1, len(names)))]
    assert [rows.user_ids[user] for user in rows.users[1::2]] == ["shared"] * len(names)


@pytest.mark.parametrize("names", [["train.parquet", "test.parquet"], ["events.parquet", "old/events.parquet"]])
def test_two_tables_are_not_parts_of_one(tmp_path: Path, names: list[str]) -> None:
    for name in names:
        write(tmp_path / name, ["a"])
    assert find_parts(tmp_path) == ()


def test_a_folder_with_two_tables_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "train.parquet", ["a"])
    write(tmp_path / "test.parquet", ["a"])
    with pytest.raises(InteractionError, match=r"several files could hold the interactions.*give one"):
        detect_layout(tmp_path)
    (tmp_path / "test.parquet").unlink()
    write(tmp_path / "day=1/part-0.parquet", ["b"])
    with pytest.raises(
        InteractionError, match=r"several files .*'train.parquet', 'day=1/'.*names that differ by numbers"
    ):
        detect_layout(tmp_path)
    shutil.rmtree(tmp_path / "day=1")
    write(tmp_path / "train-1.parquet", ["a"])
    (tmp_path / "notes.csv").write_text("user_id,item_id\na,x\n")
    with pytest.raises(InteractionError, match="several files"):
        detect_layout(tmp_path)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"timestamp": ["1", "2"]}, "column 'timestamp': found type String, expected Int64 as in part-0.parquet"),
        ({"item_id": [1, 2]}, "column 'item_id': found type Int64, expected String as in part-0.parquet"),
    ],
)
def test_parts_with_other_types_are_refused(tmp_path: Path, columns: dict[str, object], message: str) -> None:
    write(tmp_path / "part-0.parquet", ["a", "b"])
    write(tmp_path / "part-1.parquet", ["a", "b"], **columns)
    with pytest.raises(InteractionError, match=message):
        detect_layout(tmp_path)


def test_a_part_without_a_column_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "part-0.parquet", ["a"])
    pl.DataFrame({"user_id": ["a"], "item_id": ["x"]}).write_parquet(tmp_path / "part-1.parquet")
    with pytest.raises(InteractionError, match=r"part-1.parquet: column 'timestamp': found no such column"):
        detect_layout(tmp_path)


def test_an_invalid_value_is_located_in_its_part(tmp_path: Path) -> None:
    write(tmp_path / "part-0.parquet", ["a", "b"])
    write(tmp_path / "part-1.parquet", ["a", "", "c"])
    with pytest.raises(InteractionError, match=r"part-1.parquet: row 2: column 'user_id': the id is empty"):
        read_interactions(detect_layout(tmp_path))


def test_a_part_that_is_missing_behind_its_link_is_named(tmp_path):
    for number in (0, 1):
        pl.DataFrame({"user": [1]}).write_parquet(tmp_path / f"part-{number}.parquet")
    (tmp_path / "part-2.parquet").symlink_to(tmp_path / "missing")
    with pytest.raises(FileNotFoundError, match="part-2.parquet: a link to a missing file"):
        find_parts(tmp_path)
    (tmp_path / "part-2.parquet").rename(tmp_path / "_part-2.parquet")
    assert [path.name for path in find_parts(tmp_path)] == ["part-0.parquet", "part-1.parquet"]


def test_a_linked_partition_is_named_in_place_of_left_out(tmp_path):
    for year in (2024, 2025):
        (tmp_path / f"table/year={year}").mkdir(parents=True)
        pl.DataFrame({"user": [1]}).write_parquet(tmp_path / f"table/year={year}/part-0.parquet")
    (tmp_path / "table/year=2024").rename(tmp_path / "elsewhere")
    (tmp_path / "table/year=2024").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FileNotFoundError, match="year=2024: a link to a folder with .parquet files"):
        find_parts(tmp_path / "table")

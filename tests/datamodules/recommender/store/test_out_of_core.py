"""Tests that the conversion on disk writes the same store, to the byte, as the conversion in memory."""

import filecmp
import itertools
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from datamodules.recommender.reading.errors import InteractionError, SourceChangedError
from datamodules.recommender.store import out_of_core, prepare, row_copy, row_database
from datamodules.recommender.store.interaction_store import InteractionStore
from datamodules.recommender.store.prepare import Conversion, prepare_store
from engine.system import extras
from tests.conftest import REPOSITORY

pytest.importorskip("duckdb", reason="the extra `large` is not installed")

ROWS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 7), st.integers(0, 4), st.integers(1, 5)), min_size=1)


def write(folder: Path, rows: list[tuple[int, int, int, int]], parts: int = 1, text: bool = False) -> Path:
    """Write rows of (user, item, time, rating) to so many files with row groups of three rows."""
    folder.mkdir()
    users, items, times, ratings = (list(column) for column in zip(*rows, strict=True))
    ids = [f"é{user}" for user in users] if text else [2**63 + user for user in users]
    table = pl.DataFrame(
        {"user_id": ids, "item_id": items, "timestamp": times, "rating": ratings},
        schema={
            "user_id": pl.String if text else pl.UInt64,
            "item_id": pl.Int32,
            "timestamp": pl.Int64,
            "rating": pl.Int8,
        },
    )
    size = -(-len(rows) // parts)
    for part in range(parts):
        table[part * size : (part + 1) * size].write_parquet(folder / f"part-{part}.parquet", row_group_size=3)
    return folder


def on_disk(source: Path, cache: Path, **conversion: object) -> InteractionStore:
    """Convert a table on disk, although it is small, and commit and fetch a few rows at a time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prepare, "BYTES_OF_A_ROW", 1e12)
        patch.setattr(row_copy, "_COMMITTED", 3)
        for module in (row_database, out_of_core):
            patch.setattr(module, "BLOCK", 4)
        return prepare_store(source, cache=cache, **Conversion(**conversion))  # type: ignore[typeddict-item]


def assert_same(actual: InteractionStore, expected: InteractionStore) -> None:
    names = [path.name for path in expected.root.iterdir()]
    assert sorted(names) == sorted(path.name for path in actual.root.iterdir())
    assert filecmp.cmpfiles(expected.root, actual.root, names, shallow=False) == (names, [], [])


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    rows=ROWS,
    parts=st.integers(1, 3),
    text=st.booleans(),
    filters=st.fixed_dictionaries(
        {
            "min_item_interactions": st.integers(0, 3),
            "min_user_interactions": st.integers(0, 3),
            "k_core": st.booleans(),
            "min_rating": st.sampled_from([None, 3]),
        }
    ),
)
def test_it_is_the_store_of_the_conversion_in_memory(rows, parts, text, filters) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = write(folder / "table", rows, parts, text)
        try:
            expected = prepare_store(source, cache=folder / "memory", **filters)
        except InteractionError as error:
            with pytest.raises(InteractionError) as actual:
                on_disk(source, folder / "disk", **filters)
            assert str(actual.value) == str(error)
        else:
            assert_same(on_disk(source, folder / "disk", **filters), expected)
            assert [path.name for path in (folder / "disk").iterdir() if path.suffix == ".work"] == []


def test_a_table_without_times_is_read_on_disk_as_in_memory(tmp_path: Path) -> None:
    source = tmp_path / "table"
    source.mkdir()
    pl.DataFrame({"user": ["b", "a", "b"], "item": ["x", "x", "y"]}).write_parquet(source / "events.parquet")
    expected = prepare_store(source, cache=tmp_path / "memory", min_item_interactions=1)
    actual = on_disk(source, tmp_path / "disk", min_item_interactions=1)
    assert_same(actual, expected)
    assert not actual.has_times
    assert actual.user_ids == ["b", "a"]


def test_a_table_that_changes_while_it_is_read_leaves_no_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = [(1, 2, 3, 4)] * 6, [(5, 6, 7, 4)] * 6
    source, other = write(tmp_path / "table", first), write(tmp_path / "other", second)
    copy_rows = out_of_core.copy_rows

    def replace_and_copy(*arguments: Any) -> None:
        (other / "part-0.parquet").replace(source / "part-0.parquet")
        copy_rows(*arguments)

    monkeypatch.setattr(out_of_core, "copy_rows", replace_and_copy)
    with pytest.raises(SourceChangedError, match=r"part-0\.parquet: was changed while it was read"):
        on_disk(source, tmp_path / "disk", min_item_interactions=1)
    assert not [path for path in (tmp_path / "disk").iterdir() if path.is_dir()], "the rows are of another version"
    monkeypatch.undo()
    write(tmp_path / "again", first)
    (tmp_path / "again/part-0.parquet").replace(source / "part-0.parquet")
    expected = prepare_store(source, cache=tmp_path / "memory", min_item_interactions=1)
    assert_same(on_disk(source, tmp_path / "disk", min_item_interactions=1), expected)


ROWS_OF_FOUR_PARTS = [(number % 5, number % 7, number % 3, 1) for number in range(48)]


class Stopped(BaseException):
    """The conversion ends here."""


def stop_at(block: int, stop: Callable[[], None]) -> Callable[..., pl.DataFrame]:
    """Return a replacement of `_validate_block` that calls `stop` for a block, counted from 1."""
    checked, blocks = row_copy._validate_block, itertools.count(1)

    def replacement(*arguments: Any) -> pl.DataFrame:
        if next(blocks) == block:
            stop()
        return checked(*arguments)

    return replacement


def raise_stopped() -> None:
    raise Stopped


def assert_continues(source: Path, folder: Path, block: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="lockstep")
    found = on_disk(source, folder / "disk", min_item_interactions=1)
    # Each block has three rows and is committed.
    assert (f"continuing after row {3 * (block - 1)} of 48" in caplog.text) == (block > 1)
    assert_same(found, prepare_store(source, cache=folder / "memory", min_item_interactions=1))


@pytest.mark.parametrize("block", [1, 2, 9, 16])
def test_a_stopped_conversion_continues(tmp_path, caplog, monkeypatch, block) -> None:
    source = write(tmp_path / "table", ROWS_OF_FOUR_PARTS, parts=4)
    with monkeypatch.context() as patch, pytest.raises(Stopped):
        patch.setattr(row_copy, "_validate_block", stop_at(block, raise_stopped))
        on_disk(source, tmp_path / "disk", min_item_interactions=1)
    assert_continues(source, tmp_path, block, caplog)


@pytest.mark.slow
def test_a_killed_conversion_continues(tmp_path, caplog) -> None:
    source = write(tmp_path / "table", ROWS_OF_FOUR_PARTS, parts=4)
    program = (
        "import os, sys; from pathlib import Path\n"
        "from tests.datamodules.recommender.store import test_out_of_core as t\n"
        "t.row_copy._validate_block = t.stop_at(6, lambda: os.kill(os.getpid(), 9))\n"
        "t.on_disk(Path(sys.argv[1]), Path(sys.argv[2]), min_item_interactions=1)"
    )
    command = [sys.executable, "-c", program, str(source), str(tmp_path / "disk")]
    assert subprocess.run(command, cwd=REPOSITORY, timeout=120).returncode == -9
    assert_continues(source, tmp_path, 6, caplog)


def test_an_invalid_value_is_located_by_its_row_in_the_file(tmp_path: Path) -> None:
    source = write(tmp_path / "table", ROWS_OF_FOUR_PARTS, parts=4)
    part = source / "part-2.parquet"
    times = [1, 2, 3, 4, 5, 6, 7, -8, 9, 10, 11, 12]
    pl.read_parquet(part).with_columns(timestamp=pl.Series(times)).write_parquet(part, row_group_size=3)
    expected = r"part-2.parquet: row 8: column 'timestamp': found '-8', a negative time"
    with pytest.raises(InteractionError, match=expected):
        on_disk(source, tmp_path / "disk")


def test_dates_written_as_numbers_are_refused(tmp_path: Path) -> None:
    source = write(tmp_path / "table", [(0, 1, 20240131, 1), (0, 2, 20240201, 1)])
    with pytest.raises(InteractionError, match="column 'timestamp': found numbers such as 20240131"):
        on_disk(source, tmp_path / "disk")


def test_a_corrupt_file_ends_in_one_message(tmp_path: Path) -> None:
    source = write(tmp_path / "table", ROWS_OF_FOUR_PARTS, parts=4)
    content = bytearray((source / "part-1.parquet").read_bytes())
    content[4:200] = b"\xff" * 196
    (source / "part-1.parquet").write_bytes(content)
    with pytest.raises(InteractionError, match=r"part-1.parquet: cannot be read as Parquet: .*corrupt") as error:
        on_disk(source, tmp_path / "disk")
    assert str(error.value).count("\n") == 0


def test_without_duckdb_the_command_that_installs_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write(tmp_path / "table", ROWS_OF_FOUR_PARTS)
    monkeypatch.setattr(extras, "find_spec", lambda name: None if name == "duckdb" else object())
    with pytest.raises(extras.MissingPackagesError) as error:
        on_disk(source, tmp_path / "disk")
    assert "duckdb" in str(error.value)
    assert "large" in str(error.value)

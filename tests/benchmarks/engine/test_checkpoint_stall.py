"""Runs the benchmark of checkpoint stalls at small sizes and checks its measurements."""

from collections import namedtuple

import pytest
from rich.console import Console

from benchmarks.engine.checkpoint_stall import WAYS, Stall, file_system, rows, table


@pytest.mark.slow
@pytest.mark.usefixtures("forked_variants")
def test_each_way_is_measured(tmp_path, capsys):
    measured = rows(megabytes=(100,), repeats=2, folder=tmp_path)
    assert [(row.megabytes, row.way) for row in measured] == [(100, way) for way in WAYS]
    for row in measured:
        assert len(row.stall) == len(row.whole) == 2
        assert row.file_system == file_system(tmp_path)
        assert all(0 < stall <= whole for stall, whole in zip(row.stall, row.whole, strict=True))
    copies = {row.way: row.memory / 100e6 for row in measured}
    assert copies["engine"] < 0.5, "it writes the checkpoint as it is"
    # Earlier variants freed as much memory; in the same process this variant would use that memory again.
    assert 0.9 < copies["engine, asynchronous"] < 1.5
    assert copies["Lightning"] > 0.9
    assert copies["Lightning, asynchronous"] > copies["Lightning"] + 0.5
    assert list(tmp_path.iterdir()) == []
    Console(width=140).print(table(measured))
    printed = capsys.readouterr().out
    assert [way for way in WAYS if way not in printed] == []


def test_bandwidth_is_size_over_time(capsys):
    stall = Stall("engine", 500, [250.0, 1000.0, 500.0], [2000.0, 4000.0, 1000.0], 500_000_000, "tmpfs on tmpfs")
    Console(width=140).print(table([stall]))
    printed = capsys.readouterr().out
    assert "1,000" in printed
    assert "250" in printed
    assert "500" in printed
    assert "tmpfs on tmpfs" in printed


def test_a_full_disk_is_known_before(tmp_path, monkeypatch):
    usage = namedtuple("usage", "free")
    monkeypatch.setattr("benchmarks.engine.checkpoint_stall.shutil.disk_usage", lambda path: usage(3_000_000))
    with pytest.raises(OSError, match="has 3 MB left, and a checkpoint of 2,000 MB needs 2,400: make room"):
        rows(megabytes=(1, 2000), repeats=1, folder=tmp_path)
    assert list(tmp_path.iterdir()) == []

"""The benchmark of checkpoints measures what it says."""

from rich.console import Console

from benchmarks.engine.checkpoint_stall import WAYS, rows, table


def test_each_way_is_measured(tmp_path, capsys):
    measured = rows(megabytes=(1, 2), repeats=2, folder=tmp_path)
    assert [(row.megabytes, row.way) for row in measured] == [(size, way) for size in (1, 2) for way in WAYS]
    for row in measured:
        assert len(row.stall) == len(row.whole) == 2
        assert all(0 < stall <= whole for stall, whole in zip(row.stall, row.whole, strict=True))
    assert list(tmp_path.iterdir()) == []
    Console(width=140).print(table(measured))
    printed = capsys.readouterr().out
    assert [way for way in WAYS if printed.count(way) < 2] == []

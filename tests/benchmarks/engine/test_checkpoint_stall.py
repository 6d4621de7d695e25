"""The benchmark of checkpoints measures what it says."""

from benchmarks.engine.checkpoint_stall import WAYS, main, rows


def test_each_way_is_measured(tmp_path, capsys):
    measured = rows(megabytes=(1, 2), repeats=1, folder=tmp_path)
    assert [(row.megabytes, row.way) for row in measured] == [(size, way) for size in (1, 2) for way in WAYS]
    assert all(0 < row.stall_ms <= row.whole_ms for row in measured)
    assert list(tmp_path.iterdir()) == []
    main(["--megabytes", "1", "--repeats", "1", "--folder", str(tmp_path)])
    assert len(capsys.readouterr().out.splitlines()) == 1 + len(WAYS)

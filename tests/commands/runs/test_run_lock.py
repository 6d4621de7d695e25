"""Tests that two trainings never write into one folder."""

import pytest

from commands.runs.run_lock import lock_run


def test_the_second_is_refused_until_the_first_is_done(tmp_path):
    first = lock_run(tmp_path / "run")
    with pytest.raises(BlockingIOError, match="another training is writing into .*run.*another --run_name"):
        lock_run(tmp_path / "run", timeout=0.1)
    other = lock_run(tmp_path / "other", timeout=0.1)
    first.release()
    lock_run(tmp_path / "run", timeout=0.1).release()
    other.release()


def test_a_directory_that_cannot_be_locked_is_reported(tmp_path, monkeypatch, messages):
    from filelock import FileLock

    def missing(self):
        raise NotImplementedError("FileSystem does not appear to support flock")

    monkeypatch.setattr(FileLock, "_acquire", missing)
    assert lock_run(tmp_path / "run") is None
    assert "cannot be locked" in messages[-1]

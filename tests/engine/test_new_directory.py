"""A directory that is there whole or not at all."""

import pytest

from engine.new_directory import new_directory


def test_it_is_there_when_all_is_in_it(tmp_path):
    with new_directory(tmp_path / "out" / "model") as folder:
        assert folder.parent == tmp_path / "out" and not (tmp_path / "out" / "model").exists()
        (folder / "inner").mkdir()
        (folder / "inner" / "file").write_text("text")
    assert (tmp_path / "out" / "model" / "inner" / "file").read_text() == "text"
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["model"]


def test_what_is_there_is_left_alone(tmp_path):
    (tmp_path / "model").mkdir()
    with pytest.raises(FileExistsError, match="model is there already"), new_directory(tmp_path / "model"):
        raise AssertionError("nothing may be written")
    assert list(tmp_path.rglob("*")) == [tmp_path / "model"]


def test_nothing_is_left_of_a_failure(tmp_path):
    with pytest.raises(OSError, match="the disk is full"), new_directory(tmp_path / "model") as folder:
        (folder / "file").write_text("half")
        raise OSError("the disk is full")
    assert list(tmp_path.iterdir()) == []

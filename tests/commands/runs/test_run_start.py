"""Tests the start of a command in a run directory."""

from pathlib import Path

import pytest

from commands.runs.run_start import RunStart


@pytest.mark.parametrize("path", [Path("runs"), Path("runs/a"), Path("runs/a/checkpoints")])
@pytest.mark.parametrize(
    ("kind", "words"), [("file", "is a file; expected a directory"), ("link", "is a link to absent")]
)
def test_a_path_that_is_no_directory_is_refused(tmp_path, monkeypatch, path, kind, words):
    monkeypatch.chdir(tmp_path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch() if kind == "file" else path.symlink_to("absent")
    start = RunStart("fit", Path("runs"), {})
    with pytest.raises(NotADirectoryError, match=f"^{path} {words}"):
        start.select_checkpoint(None, start.select_directory("a", [], None))
    assert path.is_symlink() or path.is_file(), "nothing is changed"

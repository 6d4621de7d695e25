"""Tests that the files of a folder are listed as a whole, or that an error names what cannot be listed."""

import os
import subprocess
import sys

import pytest

from engine.io.folder_walk import require_no_linked_folder, walk_visible, without_folders
from tests.conftest import REPOSITORY


def test_hidden_names_are_left_out_and_links_to_folders_not_followed(tmp_path):
    for name in ("a/b", "a/.hidden", ".git"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "1.txt").touch()
    (tmp_path / "a/.2.txt").touch()
    (tmp_path / "a/loop").symlink_to(tmp_path)
    (tmp_path / "lost").symlink_to(tmp_path / "missing")
    paths = {str(path.relative_to(tmp_path)) for path in walk_visible(tmp_path)}
    assert paths == {"a", "a/b", "a/b/1.txt", "a/loop", "lost"}
    assert {str(path.relative_to(tmp_path)) for path in walk_visible(tmp_path / "a/loop")} == {
        f"a/loop/{name}" for name in paths
    }, "the folder itself may be a link"
    assert list(walk_visible(tmp_path / "missing")) == []


@pytest.mark.skipif(sys.platform == "win32", reason="permissions of POSIX")
def test_a_folder_that_must_not_be_listed_is_no_empty_folder(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a/1.txt").touch()
    # The process may be root, whom permissions do not stop: the child becomes another user, as far as it has to.
    code = f"""
import os, sys
sys.path.insert(0, {str(REPOSITORY)!r})
from pathlib import Path
from engine.io.folder_walk import walk_visible
list(walk_visible(Path({str(tmp_path)!r})))
print("listed", flush=True)
os.chmod({str(tmp_path / "a")!r}, 0)
os.chmod({str(tmp_path)!r}, 0o755)
os.chdir({str(tmp_path)!r})
if os.geteuid() == 0:
    os.seteuid(65534)
list(walk_visible(Path(".")))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    os.chmod(tmp_path / "a", 0o755)
    assert done.stdout == "listed\n"
    assert "PermissionError" in done.stderr
    assert "'a'" in done.stderr


def test_a_pipe_and_a_lost_link_are_named_in_place_of_left_out(tmp_path):
    (tmp_path / "a.parquet").mkdir()
    (tmp_path / "b.parquet").touch()
    assert without_folders(tmp_path.iterdir()) == [tmp_path / "b.parquet"]
    (tmp_path / "c.parquet").symlink_to(tmp_path / "missing")
    with pytest.raises(FileNotFoundError, match="c.parquet: a link to a missing file; restore the file, or remove c"):
        without_folders(tmp_path.iterdir())
    (tmp_path / "c.parquet").unlink()
    os.mkfifo(tmp_path / "c.parquet")
    with pytest.raises(FileNotFoundError, match="c.parquet: not a regular file"):
        without_folders(tmp_path.iterdir())


def test_a_linked_part_of_a_table_is_refused_and_other_links_are_not(tmp_path):
    table, elsewhere = tmp_path / "table", tmp_path / "elsewhere"
    for folder in (table / "year=2025", elsewhere / "month=1", tmp_path / "images"):
        folder.mkdir(parents=True)
    (table / "year=2025/1.parquet").touch()
    (table / "latest").symlink_to(table / "year=2025")
    (table / "loop").symlink_to(tmp_path)
    (table / "images").symlink_to(tmp_path / "images")
    (table / "lost").symlink_to(tmp_path / "missing")
    require_no_linked_folder(table, walk_visible(table), ".parquet")
    (elsewhere / "month=1/1.parquet").touch()
    (table / "year=2024").symlink_to(elsewhere)
    with pytest.raises(FileNotFoundError, match="year=2024: a link to a folder with .parquet files, which is not foll"):
        require_no_linked_folder(table, walk_visible(table), ".parquet")

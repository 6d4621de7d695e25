"""Tests folders whose content git ignores."""

import shutil
import subprocess
from pathlib import Path

import pytest

from engine.io.gitignored_folder import add_gitignore, make_gitignored_folder


def test_git_takes_nothing_of_the_folder(tmp_path: Path) -> None:
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True, timeout=60)
    make_gitignored_folder(tmp_path / "data/cache")
    (tmp_path / "data/cache/arrays").mkdir()
    (tmp_path / "data/cache/arrays/items.npy").write_bytes(b"array")
    (tmp_path / "data/mine.csv").write_text("mine")
    subprocess.run(["git", "-C", str(tmp_path), "add", "-A"], check=True, timeout=60)
    taken = subprocess.run(["git", "-C", str(tmp_path), "ls-files"], capture_output=True, check=True, timeout=60)
    assert taken.stdout.decode().split() == ["data/mine.csv"]


def test_an_existing_folder_is_left_unchanged(tmp_path: Path) -> None:
    make_gitignored_folder(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_gitignore_of_the_user_is_kept(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("!keep\n")
    add_gitignore(tmp_path)
    assert (tmp_path / ".gitignore").read_text() == "!keep\n"

"""Tests engine/io/content_hash.py: which changes of a file are found."""

import json
import os
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.io import content_hash
from engine.io.content_hash import REMEMBERED, ContentHashes, path_for_key

SIZE = 3 << 20
"""Bytes of a file whose samples are a third of it."""


def rewrite_with_old_times(path: Path, content: bytes) -> None:
    """Write a file and restore its times, as `cp -p` does, in another tick of the file system's clock."""
    before = path.stat()
    while True:
        path.write_bytes(content)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        after = path.stat()
        if after.st_ctime_ns != before.st_ctime_ns:
            break
    assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)


@pytest.fixture
def large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that counts as large, whose hash is remembered."""
    monkeypatch.setattr(content_hash, "SMALL", 1000)
    path = tmp_path / "large"
    path.write_bytes(bytes(SIZE))
    hashes = ContentHashes([tmp_path])
    assert hashes.get(path) == sha256(bytes(SIZE)).hexdigest()
    hashes.save(tmp_path)
    return path


@pytest.fixture
def never_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content_hash, "hash_file", lambda path: pytest.fail(f"{path} is read again"))


@given(before=st.binary(max_size=50), after=st.binary(max_size=50))
def test_a_small_file_has_the_hash_of_its_content_whatever_its_times(
    tmp_path_factory: pytest.TempPathFactory, before: bytes, after: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "small"
    hashes = ContentHashes([path.parent])
    found = []
    for content in (before, after):
        path.write_bytes(content)
        os.utime(path, ns=(0, 4_000_000_000_000_000_000))  # in the year 2096
        found.append(hashes.get(path))
        hashes.save(path.parent)
    assert found == [sha256(before).hexdigest(), sha256(after).hexdigest()]


@pytest.mark.parametrize("changed", [0, SIZE // 2, 100_000, SIZE - 1])
def test_a_byte_of_a_large_file_with_the_old_times_is_found(large: Path, changed: int) -> None:
    content = bytes(changed) + b"\1" + bytes(SIZE - changed - 1)
    rewrite_with_old_times(large, content)
    assert ContentHashes([large.parent]).get(large) == sha256(content).hexdigest()


def test_a_sampled_byte_is_found_even_if_no_time_moves(
    large: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    remembered = json.loads((tmp_path / REMEMBERED).read_text())
    with large.open("r+b") as file:
        file.seek(SIZE - 1)
        file.write(b"\1")
    now = large.stat()
    remembered[str(large)]["state"][1:3] = [now.st_mtime_ns, now.st_ctime_ns]  # as if the clock stood still
    (tmp_path / REMEMBERED).write_text(json.dumps(remembered))
    assert ContentHashes([tmp_path]).get(large) == sha256(bytes(SIZE - 1) + b"\1").hexdigest()


def test_an_unchanged_large_file_is_not_read_again(large: Path, never_read: None) -> None:
    assert ContentHashes([large.parent / "none", large.parent]).get(large) == sha256(bytes(SIZE)).hexdigest()


def test_other_permissions_and_links_leave_the_hash(large: Path) -> None:
    large.chmod(0o400)
    os.link(large, large.with_name("link"))
    os.utime(large, ns=(1, 1))
    assert ContentHashes([large.parent]).get(large) == sha256(bytes(SIZE)).hexdigest()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"large": 1}', '{"large": {"state": [], "sha256": 3}}'])
def test_an_invalid_cached_hash_is_computed_again(large: Path, text: str) -> None:
    (large.parent / REMEMBERED).write_text(text.replace("large", str(large)))
    hashes = ContentHashes([large.parent])
    assert hashes.get(large) == sha256(bytes(SIZE)).hexdigest()
    hashes.save(large.parent)
    assert str(large) in json.loads((large.parent / REMEMBERED).read_text())


def test_entries_of_other_processes_are_kept(large: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(bytes(2000))
    first, second = ContentHashes([]), ContentHashes([])
    first.get(large), second.get(other)
    first.save(tmp_path / "cache")
    second.save(tmp_path / "cache")
    assert json.loads((tmp_path / "cache" / REMEMBERED).read_text()).keys() == {str(large), str(other)}


def test_a_folder_that_is_not_writable_only_costs_time(large: Path) -> None:
    hashes = ContentHashes([])
    digest = hashes.get(large)
    hashes.save(large / "below a file")
    assert ContentHashes([large / "below a file"]).get(large) == digest


def test_the_path_of_a_source_is_relative_to_a_cache_beside_it_and_else_absolute(tmp_path: Path) -> None:
    for root in (tmp_path, tmp_path / "moved"):
        assert path_for_key(root / "set/a.csv", root / "set/.lockstep") == "a.csv"
        assert path_for_key(root / "data/set/a.csv", root / "data/cache") == "set/a.csv"
    assert path_for_key(tmp_path / "set/a.csv", tmp_path / "data/cache") == str(tmp_path / "set/a.csv")

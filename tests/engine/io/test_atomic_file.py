"""Files and directories are complete under their names, or do not exist."""

import os
import socket
import stat
import tempfile
from pathlib import Path

import pytest

from engine.io import atomic_file
from engine.io.atomic_file import (
    atomic_directory,
    flush_folder,
    flush_tree,
    remove,
    remove_leftovers,
    temp_path,
    write_temp,
)


def exists(path):
    assert path.exists()


def test_written_and_checked_before_it_has_a_name(tmp_path):
    path = tmp_path / "checkpoints" / "last.ckpt"
    checked = []
    new = write_temp(path, lambda file: file.write(b"abc"), lambda temporary: checked.append(temporary.read_bytes()))
    assert (checked, new.read_bytes(), path.exists()) == ([b"abc"], b"abc", False)
    assert not list(path.parent.glob("*.ckpt")), "the temporary file must not match *.ckpt"
    os.replace(new, path)
    flush_folder(path.parent)


def test_a_failed_check_leaves_nothing(tmp_path):
    path = tmp_path / "last.ckpt"

    def refuse(temporary):
        raise ValueError("not what was written")

    with pytest.raises(ValueError, match="not what was written"):
        write_temp(path, lambda file: file.write(b"abc"), refuse)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_the_error_of_the_disk_is_raised(tmp_path):
    """torch alone would raise `[enforce fail at inline_container.cc:672] . unexpected pos 704 vs 598`."""
    torch = pytest.importorskip("torch")
    temp_path(tmp_path / "last.ckpt").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left on device"):
        write_temp(tmp_path / "last.ckpt", lambda file: torch.save(torch.zeros(10**6), file), exists)
    assert list(tmp_path.iterdir()) == []


def test_flushed_before_it_is_checked(tmp_path, monkeypatch):
    order = []
    monkeypatch.setattr(atomic_file.os, "fsync", lambda descriptor: order.append("flush"))
    write_temp(tmp_path / "a", lambda file: order.append("write"), lambda temporary: order.append("check"))
    assert order == ["write", "flush", "check"]


def test_leftovers_of_ended_processes_are_removed(tmp_path):
    host = socket.gethostname().replace(".", "-")
    gone = [
        f".last.ckpt.{host}.999999999.new",
        f".best.ckpt.link.{host}.999999999.new",
        f".a.ckpt.{host}.{os.getpid()}.new",
    ]
    old = ".last.ckpt.elsewhere.77.new"
    kept = [f".last.ckpt.{host}.{os.getppid()}.new", ".last.ckpt.elsewhere.78.new", "last.ckpt", ".mine.new", "c.new"]
    for name in [*gone, old, *kept]:
        (tmp_path / name).touch()
    os.utime(tmp_path / old, (1, 1))
    assert set(remove_leftovers(tmp_path)) == {*gone, old}
    assert {path.name for path in tmp_path.iterdir()} == set(kept)
    assert remove_leftovers(tmp_path / "absent") == []


def test_a_failed_delete_is_a_warning(tmp_path, messages, monkeypatch):
    (tmp_path / "last-1.ckpt").touch()

    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(type(tmp_path), "unlink", refuse)
    remove(tmp_path / "last-1.ckpt")
    assert messages == [f"could not delete {tmp_path / 'last-1.ckpt'}: [Errno 13] Permission denied"]


def test_a_directory_gets_its_name_when_it_is_complete(tmp_path):
    with atomic_directory(tmp_path / "out" / "model") as folder:
        assert folder.parent == tmp_path / "out"
        assert not (tmp_path / "out" / "model").exists()
        (folder / "inner").mkdir()
        (folder / "inner" / "file").write_text("text")
    assert (tmp_path / "out" / "model" / "inner" / "file").read_text() == "text"
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["model"]


def test_an_existing_directory_is_not_changed(tmp_path):
    (tmp_path / "model").mkdir()
    with pytest.raises(FileExistsError, match="model exists already"), atomic_directory(tmp_path / "model"):
        raise AssertionError("nothing may be written")
    assert list(tmp_path.rglob("*")) == [tmp_path / "model"]


def test_a_failed_directory_leaves_nothing(tmp_path):
    with pytest.raises(OSError, match="the disk is full"), atomic_directory(tmp_path / "model") as folder:
        (folder / "file").write_text("half")
        raise OSError("the disk is full")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.name == "nt", reason="Windows has no umask")
def test_a_flushed_tree_has_the_permissions_of_the_umask(tmp_path):
    folder = Path(tempfile.mkdtemp(dir=tmp_path))  # 0o700
    (folder / "file").touch(mode=0o600)
    (folder / "inner").mkdir(mode=0o700)
    before = os.umask(0o027)
    try:
        flush_tree(folder)
    finally:
        os.umask(before)
    found = [stat.S_IMODE(path.stat().st_mode) for path in (folder, folder / "inner", folder / "file")]
    assert found == [0o750, 0o750, 0o640]


def test_a_file_is_flushed_renamed_and_its_folder_flushed(tmp_path, monkeypatch):
    order = []
    for name in ("fsync", "replace"):
        call = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *args, name=name, call=call: (order.append(name), call(*args))[1])
    path = tmp_path / "new folder" / "file"
    for content in (b"first", b"second"):
        atomic_file.write_atomically(path, content)
        assert path.read_bytes() == content
        assert list(path.parent.iterdir()) == [path]
    assert order == ["fsync", "replace", "fsync"] * 2, "the file, and then the entry of its folder"


def test_an_error_leaves_the_earlier_file(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_bytes(b"first")
    monkeypatch.setattr(os, "fsync", lambda descriptor: (_ for _ in ()).throw(OSError("no space")))
    with pytest.raises(OSError, match="no space"):
        atomic_file.write_atomically(path, b"second")
    assert path.read_bytes() == b"first"
    assert list(tmp_path.iterdir()) == [path]

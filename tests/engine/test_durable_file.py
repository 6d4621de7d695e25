"""A file is there whole or not at all."""

import os
import socket

import pytest

from engine import durable_file
from engine.durable_file import beside, flush_folder, remove, remove_leftovers, write_beside


def fine(path):
    assert path.exists()


def test_written_and_checked_before_it_has_a_name(tmp_path):
    path = tmp_path / "checkpoints" / "last.ckpt"
    seen = []
    new = write_beside(path, lambda file: file.write(b"abc"), lambda hidden: seen.append(hidden.read_bytes()))
    assert (seen, new.read_bytes(), path.exists()) == ([b"abc"], b"abc", False)
    assert not list(path.parent.glob("*.ckpt")), "no search for checkpoints finds it"
    os.replace(new, path)
    flush_folder(path.parent)


def test_nothing_is_left_of_what_failed(tmp_path):
    path = tmp_path / "last.ckpt"

    def refuse(hidden):
        raise ValueError("not what was written")

    with pytest.raises(ValueError, match="not what was written"):
        write_beside(path, lambda file: file.write(b"abc"), refuse)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_what_the_disk_says_is_what_is_raised(tmp_path, monkeypatch):
    """torch would say `[enforce fail at inline_container.cc:672] . unexpected pos 704 vs 598`."""
    torch = pytest.importorskip("torch")
    hidden = beside(tmp_path / "last.ckpt")
    hidden.symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left on device"):
        write_beside(tmp_path / "last.ckpt", lambda file: torch.save(torch.zeros(10**6), file), fine)
    assert list(tmp_path.iterdir()) == []


def test_flushed_before_it_is_checked(tmp_path, monkeypatch):
    order = []
    monkeypatch.setattr(durable_file.os, "fsync", lambda descriptor: order.append("flush"))
    write_beside(tmp_path / "a", lambda file: order.append("write"), lambda hidden: order.append("check"))
    assert order == ["write", "flush", "check"]


def test_leftovers(tmp_path):
    host = socket.gethostname().replace(".", "-")
    gone = [
        f".last.ckpt.{host}.999999999.new", f".best.ckpt.link.{host}.999999999.new", f".a.ckpt.{host}.{os.getpid()}.new"
    ]  # fmt: skip
    old = ".last.ckpt.elsewhere.77.new"
    kept = [f".last.ckpt.{host}.{os.getppid()}.new", ".last.ckpt.elsewhere.78.new", "last.ckpt", ".mine.new", "c.new"]
    for name in [*gone, old, *kept]:
        (tmp_path / name).touch()
    os.utime(tmp_path / old, (1, 1))
    assert set(remove_leftovers(tmp_path)) == {*gone, old}
    assert {path.name for path in tmp_path.iterdir()} == set(kept)
    assert remove_leftovers(tmp_path / "absent") == []


def test_a_failed_delete_is_a_warning(tmp_path, said, monkeypatch):
    (tmp_path / "last-1.ckpt").touch()

    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(type(tmp_path), "unlink", refuse)
    remove(tmp_path / "last-1.ckpt")
    assert said == [f"could not delete {tmp_path / 'last-1.ckpt'}: [Errno 13] Permission denied"]

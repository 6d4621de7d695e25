"""Wherever a save is interrupted, an intact checkpoint remains under a name that discovery lists."""

import os
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.checkpointing import rotation
from engine.checkpointing.discovery import newest_verified
from engine.checkpointing.rotation import keep_copy, reorder, rotate_in
from engine.checkpointing.verification import verify
from engine.io import atomic_file
from engine.io.atomic_file import remove, remove_leftovers, write_temp


class Killed(BaseException):
    """Simulates SIGKILL: the disk stays as it is."""


CALLS = ("replace", "link", "unlink", "fsync", "mkdir")


class Kill:
    """Drops all changes of the disk from the k-th on."""

    def __init__(self, monkeypatch, at):
        self.left = at
        for module in (rotation.os, atomic_file.os):
            for name in CALLS:
                if hasattr(module, name):
                    monkeypatch.setattr(module, name, self.guarded(getattr(os, name)))
        monkeypatch.setattr(Path, "unlink", self.guarded(Path.unlink))

    def guarded(self, function):
        def call(*arguments, **keywords):
            if self.left == 0:
                raise Killed
            self.left -= 1
            return function(*arguments, **keywords)

        return call


def save(path, step, row, index=0, shift=True):
    content = {"step": step, "saved_at": float(step), "state_dict": {}, "pytorch-lightning_version": "2.6.6"}
    new = write_temp(path, lambda file: torch.save(content, file), verify)
    rotate_in(new, row, index, shift)


def as_folder(path, step):
    """Stand-in for a sharded checkpoint: a folder that is intact if its file exists."""
    path.mkdir(parents=True)
    (path / "step").write_text(str(step))
    return path


def steps(row):
    return [torch.load(path, weights_only=True)["step"] if path.exists() else None for path in row]


def row_in(folder, keep):
    return [folder / "checkpoints" / (f"last-{index}.ckpt" if index else "last.ckpt") for index in range(keep)]


@settings(max_examples=150, deadline=None)
@given(
    keep=st.integers(1, 4),
    saves=st.integers(0, 5),
    kill=st.integers(0, 12),
    links=st.booleans(),
    shift=st.booleans(),
)
def test_a_kill_at_any_point_loses_no_newest_checkpoint(tmp_path_factory, keep, saves, kill, links, shift):
    folder = tmp_path_factory.mktemp("run")
    row = row_in(folder, keep)
    for step in range(1, saves + 1):
        save(row[0], step, row)
    assert steps(row) == [step if step > 0 else None for step in range(saves, saves - keep, -1)]
    with pytest.MonkeyPatch.context() as patch:
        if not links:
            patch.setattr(os, "link", lambda *_: (_ for _ in ()).throw(OSError("no hard links here")))
        Kill(patch, kill)
        try:
            save(row[0], saves + 1, row, shift=shift)
            done = True
        except Killed:
            done = False
    newest = newest_verified(folder)
    if saves:
        assert newest is not None, "the newest is lost"
        assert torch.load(newest, weights_only=True)["step"] >= saves, "the newest is lost"
    if done:
        assert steps(row)[0] == saves + 1
    for path in folder.rglob("*.ckpt"):
        verify(path)
    # The next start resumes in the same folder.
    for name in (folder / "checkpoints").glob(".*"):
        os.rename(name, str(name).replace(f".{os.getpid()}.", ".999999999."))
    remove_leftovers(folder / "checkpoints")
    save(row[0], saves + 2, row)
    assert steps(row)[0] == saves + 2
    assert list((folder / "checkpoints").glob(".*")) == []


@pytest.mark.parametrize("kill", range(8))
def test_a_kill_at_any_point_keeps_the_newest_folder(tmp_path, monkeypatch, kill):
    row = row_in(tmp_path, 2)
    for index, step in enumerate((2, 1)):
        as_folder(row[index], step)
    new = as_folder(row[0].with_name(".new"), 3)
    with monkeypatch.context() as patch:
        Kill(patch, kill)
        with suppress(Killed):
            rotate_in(new, row)
    found = [(path / "step").read_text() for path in row if path.exists()]
    assert found
    assert max(found) >= "2"


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 100), min_size=1, max_size=12), st.integers(1, 4))
def test_a_rotation_by_score_holds_the_best_in_order(tmp_path_factory, scores, keep):
    """With insertion by score the rotation holds the best checkpoints in order."""
    folder = tmp_path_factory.mktemp("run")
    row = [folder / (f"best-{index + 1}.ckpt" if index else "best.ckpt") for index in range(keep)]
    best = []
    for score in scores:
        index = next((index for index, other in enumerate(best) if score > other), len(best))
        if index < keep:
            best = sorted([*best, score], reverse=True)[:keep]
            save(row[index], score, row, index)
        assert steps(row) == best + [None] * (keep - len(best))


@settings(max_examples=50, deadline=None)
@given(st.permutations(range(5)), st.integers(0, 5))
def test_reordering_moves_files_to_the_front(tmp_path_factory, order, count):
    folder, indices = tmp_path_factory.mktemp("run"), order[:count]
    row = [folder / f"best-{index}.ckpt" for index in range(5)]
    for index, path in enumerate(row):
        as_folder(path, index)
    reorder(row, indices)
    assert [(path / "step").read_text() for path in row[:count]] == [str(index) for index in indices]
    assert not list(folder.glob(".*"))


@pytest.mark.parametrize("folder", [False, True])
@pytest.mark.parametrize("links", [True, False])
def test_a_kept_copy_replaces_an_older_one(tmp_path, monkeypatch, folder, links):
    """The same checkpoint twice, then another one; on a file system without hard links, the bytes are copied."""

    def refuse(*_):
        raise PermissionError(1, "not permitted")

    if not links:
        monkeypatch.setattr(os, "link", refuse)
    source, kept = tmp_path / "last.ckpt", tmp_path / "step-1.ckpt"
    for text in ("a", "a", "b"):
        remove(source) if text == "b" else None
        if folder:
            source.mkdir(exist_ok=True)
        (source / "shard" if folder else source).write_text(text)
        keep_copy(source, kept)
        assert (kept / "shard" if folder else kept).read_text() == text
    remove(source)
    assert [path.name for path in tmp_path.iterdir()] == ["step-1.ckpt"]


def test_a_folder_that_cannot_be_changed(tmp_path, monkeypatch):
    row = row_in(tmp_path, 2)
    save(row[0], 1, row)

    def refuse(*_):
        raise PermissionError(13, "read-only")

    for name in ("replace", "link"):
        monkeypatch.setattr(os, name, refuse)
    with pytest.raises(PermissionError):
        save(row[0], 2, row)
    assert steps(row) == [1, None]

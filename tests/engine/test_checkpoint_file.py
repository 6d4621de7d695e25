"""Damage shows; what verifies is what was written."""

import logging
import os
import pickle

import pytest
import torch
import torch.distributed.checkpoint as dcp
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.checkpoint_file import PROGRESS, DamagedCheckpoint, candidates, head, newest_verified, saved_at, verify
from engine.manifest import MANIFEST, write_manifest

CONTENT = {"weight": torch.arange(300.0), "steps": [1, 2, 3], "saved_at": 5.0}


@pytest.fixture
def path(tmp_path):
    torch.save(CONTENT, tmp_path / "last.ckpt")
    return tmp_path / "last.ckpt"


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
def test_every_byte_that_counts(path):
    """Flip each byte in turn: it is noticed, or what is loaded is what was saved (torch pads its files)."""
    whole = path.read_bytes()
    verify(path)
    unnoticed = 0
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        try:
            verify(path)
        except DamagedCheckpoint as damaged:
            assert str(path) in str(damaged)
            continue
        loaded = torch.load(path, weights_only=True)
        assert torch.equal(loaded["weight"], CONTENT["weight"]) and loaded["steps"] == [1, 2, 3], place
        unnoticed += 1
    assert unnoticed < len(whole) / 2


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_cut_short_anywhere(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("cut") / "last.ckpt"
    torch.save(CONTENT, path)
    os.truncate(path, data.draw(st.integers(0, path.stat().st_size - 1)))
    with pytest.raises(DamagedCheckpoint, match="is damaged"):
        verify(path)


def test_other_files(tmp_path):
    (tmp_path / "a.ckpt").write_bytes(pickle.dumps({"a": 1}))
    with pytest.raises(DamagedCheckpoint, match="is damaged: File is not a zip file"):
        verify(tmp_path / "a.ckpt")
    with pytest.raises(FileNotFoundError):
        verify(tmp_path / "absent.ckpt")


def test_when_it_was_saved(path):
    assert saved_at(path) == 5.0
    assert "weight" in head(path)
    path.write_bytes(path.read_bytes()[:100])
    assert saved_at(path) == path.stat().st_mtime


class Malicious:
    def __reduce__(self):
        return os.system, ("exit 3",)


def sharded(folder):
    dcp.save({"model": {"weight": torch.randn(64, 64), "bias": torch.zeros(3, dtype=torch.bfloat16)}, "text": "a"},
             checkpoint_id=folder, no_dist=True)  # fmt: skip
    torch.save({"saved_at": 7.0}, folder / PROGRESS)
    return folder


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
def test_a_sharded_checkpoint(tmp_path):
    folder = sharded(tmp_path / "checkpoints" / "last.ckpt")
    verify(folder)
    assert saved_at(folder) == 7.0
    assert newest_verified(tmp_path) == folder
    shard = next(folder.glob("*.distcp"))
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-100])
    with pytest.raises(DamagedCheckpoint, match=rf"is not whole: {shard.name} has [\d,]+ of [\d,]+ bytes"):
        verify(folder)
    shard.unlink()
    with pytest.raises(DamagedCheckpoint, match=r"has 0 of"):
        verify(folder)
    shard.write_bytes(whole)
    index = (folder / ".metadata").read_bytes()
    (folder / ".metadata").write_bytes(index[:50])
    with pytest.raises(DamagedCheckpoint, match=".metadata cannot be read"):
        verify(folder)
    (folder / ".metadata").write_bytes(pickle.dumps(Malicious()))
    with pytest.raises(DamagedCheckpoint, match="it asks for posix.system|it asks for nt.system"):
        verify(folder)
    (folder / ".metadata").unlink()
    with pytest.raises(DamagedCheckpoint, match="written last, is missing"):
        verify(folder)
    with pytest.raises(DamagedCheckpoint, match="none of them is whole"):
        newest_verified(tmp_path)


def test_what_a_run_can_go_on_from(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    there = ["last.ckpt", "last-1.ckpt", "best.ckpt", "best-2.ckpt", "epoch-1.ckpt", ".last.ckpt.a.1.new"]
    for age, name in enumerate(there):
        torch.save({"saved_at": 100.0 - age}, tmp_path / "checkpoints" / name)
    torch.save({"saved_at": 50.0}, tmp_path / "hpc_ckpt_3.ckpt")
    names = [path.name for path in candidates(tmp_path)]
    assert names == ["last.ckpt", "last-1.ckpt", "best.ckpt", "best-2.ckpt", "hpc_ckpt_3.ckpt"]
    assert candidates(tmp_path / "other") == [] and newest_verified(tmp_path / "other") is None


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
def test_a_manifest(tmp_path, said, caplog):
    caplog.set_level(logging.DEBUG, "lockstep")
    folder = sharded(tmp_path / "last.ckpt")
    verify(folder)
    assert "has no manifest.json: only the sizes of its files can be checked" in said[-1]
    write_manifest(folder)
    verify(folder)
    for path in [path for path in folder.iterdir() if path.name != MANIFEST]:
        whole = path.read_bytes()
        path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        with pytest.raises(DamagedCheckpoint, match=f"is damaged: {path.name} has changed since it was saved"):
            verify(folder)
        path.write_bytes(whole + b"0")
        with pytest.raises(DamagedCheckpoint, match=rf"{path.name} has [\d,]+ of [\d,]+ bytes"):
            verify(folder)
        path.write_bytes(whole)
    (folder / MANIFEST).write_text("{}")
    with pytest.raises(DamagedCheckpoint, match="manifest.json cannot be read"):
        verify(folder)

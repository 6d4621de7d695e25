"""Verification detects corruption, and accepts what was written."""

import logging
import os
import pickle

import pytest
import torch
import torch.distributed.checkpoint as dcp
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.checkpointing.discovery import list_checkpoints, newest_verified, saved_at
from engine.checkpointing.sharded.shard_manifest import MANIFEST, find_corrupt_shard, write_manifest
from engine.checkpointing.verification import PROGRESS, CorruptCheckpointError, load_lazily, verify
from engine.io import file_hash

CONTENT = {"weight": torch.arange(300.0), "steps": [1, 2, 3], "saved_at": 5.0}


@pytest.fixture
def path(tmp_path):
    torch.save(CONTENT, tmp_path / "last.ckpt")
    return tmp_path / "last.ckpt"


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
def test_a_flip_of_any_byte_that_counts_is_detected(path):
    """Flip each byte in turn: it is detected, or the loaded content is unchanged (torch pads its files)."""
    content = path.read_bytes()
    verify(path)
    unnoticed = 0
    for offset in range(len(content)):
        path.write_bytes(content[:offset] + bytes([content[offset] ^ 0xFF]) + content[offset + 1 :])
        try:
            verify(path)
        except CorruptCheckpointError as error:
            assert str(path) in str(error)
            continue
        loaded = torch.load(path, weights_only=True)
        assert torch.equal(loaded["weight"], CONTENT["weight"]), offset
        assert loaded["steps"] == [1, 2, 3], offset
        unnoticed += 1
    assert unnoticed < len(content) / 2


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_file_that_is_cut_anywhere_is_corrupt(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("cut") / "last.ckpt"
    torch.save(CONTENT, path)
    os.truncate(path, data.draw(st.integers(0, path.stat().st_size - 1)))
    with pytest.raises(CorruptCheckpointError, match="is corrupt"):
        verify(path)


def test_a_file_that_is_no_checkpoint_is_corrupt(tmp_path):
    (tmp_path / "a.ckpt").write_bytes(pickle.dumps({"a": 1}))
    with pytest.raises(CorruptCheckpointError, match="is corrupt: File is not a zip file"):
        verify(tmp_path / "a.ckpt")
    with pytest.raises(FileNotFoundError):
        verify(tmp_path / "absent.ckpt")


def test_a_checkpoint_states_when_it_was_saved(path):
    assert saved_at(path) == 5.0
    assert "weight" in load_lazily(path)
    path.write_bytes(path.read_bytes()[:100])
    assert saved_at(path) == path.stat().st_mtime


class Malicious:
    def __reduce__(self):
        return os.system, ("exit 3",)


def sharded(folder):
    dcp.save(
        {"model": {"weight": torch.randn(64, 64), "bias": torch.zeros(3, dtype=torch.bfloat16)}, "text": "a"},
        checkpoint_id=folder,
        no_dist=True,
    )
    torch.save({"saved_at": 7.0, "pytorch-lightning_version": "2.6.6"}, folder / PROGRESS)
    return folder


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
def test_a_sharded_checkpoint_with_a_cut_or_missing_file_is_refused(tmp_path):
    folder = sharded(tmp_path / "checkpoints" / "last.ckpt")
    verify(folder)
    assert saved_at(folder) == 7.0
    assert newest_verified(tmp_path) == folder
    shard = next(folder.glob("*.distcp"))
    content = shard.read_bytes()
    shard.write_bytes(content[:-100])
    with pytest.raises(CorruptCheckpointError, match=rf"is incomplete: {shard.name} has [\d,]+ of [\d,]+ bytes"):
        verify(folder)
    shard.unlink()
    with pytest.raises(CorruptCheckpointError, match=r"has 0 of"):
        verify(folder)
    for index in (b"\x80\xff.", b"\x80\x04X\x01\x00\x00\x00\xff."):  # another protocol; a text that is not UTF-8
        (folder / ".metadata").write_bytes(index)
        with pytest.raises(ValueError, match=r"last.ckpt is corrupt: .metadata cannot be read"):
            verify(folder)
    shard.write_bytes(content)
    index = (folder / ".metadata").read_bytes()
    (folder / ".metadata").write_bytes(index[:50])
    with pytest.raises(CorruptCheckpointError, match=".metadata cannot be read"):
        verify(folder)
    (folder / ".metadata").write_bytes(pickle.dumps(Malicious()))
    with pytest.raises(CorruptCheckpointError, match="it refers to posix.system|it refers to nt.system"):
        verify(folder)
    (folder / ".metadata").unlink()
    with pytest.raises(CorruptCheckpointError, match="written last, is missing"):
        verify(folder)
    with pytest.raises(CorruptCheckpointError, match="none of them is intact"):
        newest_verified(tmp_path)


def test_checkpoints_to_resume_from_are_listed_by_age(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    there = ["last.ckpt", "last-1.ckpt", "best.ckpt", "best-2.ckpt", "epoch-1.ckpt", ".last.ckpt.a.1.new"]
    for age, name in enumerate(there):
        torch.save({"saved_at": 100.0 - age}, tmp_path / "checkpoints" / name)
    torch.save({"saved_at": 50.0}, tmp_path / "hpc_ckpt_3.ckpt")
    names = [path.name for path in list_checkpoints(tmp_path)]
    assert names == ["last.ckpt", "last-1.ckpt", "best.ckpt", "best-2.ckpt", "hpc_ckpt_3.ckpt"]
    assert list_checkpoints(tmp_path / "other") == []
    assert newest_verified(tmp_path / "other") is None


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
def test_a_manifest_detects_changed_files_of_a_checkpoint(tmp_path, messages, caplog):
    caplog.set_level(logging.DEBUG, "lockstep")
    folder = sharded(tmp_path / "last.ckpt")
    verify(folder)
    assert "has no manifest.json: only the sizes of its files are checked" in messages[-1]
    write_manifest(folder)
    verify(folder)
    for path in [path for path in folder.iterdir() if path.name != MANIFEST]:
        content = path.read_bytes()
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        with pytest.raises(CorruptCheckpointError, match=f"is corrupt: {path.name} has changed since it was saved"):
            verify(folder)
        path.write_bytes(content + b"0")
        with pytest.raises(CorruptCheckpointError, match=rf"{path.name} has [\d,]+ of [\d,]+ bytes"):
            verify(folder)
        path.write_bytes(content)
    for text in ("{}", '{"files": {"a": {"size": Infinity, "crc32": 0}}}'):
        (folder / MANIFEST).write_text(text)
        with pytest.raises(CorruptCheckpointError, match="manifest.json cannot be read"):
            verify(folder)


@pytest.mark.parametrize("offset", [0, 3, 4, 9])
def test_a_manifest_covers_every_chunk_of_a_file(tmp_path, monkeypatch, offset):
    monkeypatch.setattr(file_hash, "_CHUNK", 4)  # 1 MiB, so only large shards have several
    content = bytearray(b"0123456789")
    (tmp_path / "shard").write_bytes(content)
    write_manifest(tmp_path)
    assert find_corrupt_shard(tmp_path) is None
    content[offset] ^= 1
    (tmp_path / "shard").write_bytes(content)
    assert find_corrupt_shard(tmp_path) == "shard has changed since it was saved"

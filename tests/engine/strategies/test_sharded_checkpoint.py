"""Tests sharded checkpoints in one process: which of the folders that torch writes are kept."""

import os
import pickle
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch import nn

from engine.checkpointing.checkpoint_io import VerifiedCheckpointIO
from engine.checkpointing.discovery import saved_at
from engine.checkpointing.sharded.dcp_metadata import CorruptMetadataError
from engine.checkpointing.sharded.optimizer_names import named_optimizer_state, number_parameters
from engine.checkpointing.sharded.shard_files import load_tensors
from engine.checkpointing.sharded.sharded_state import GROUPS, read_shards
from engine.checkpointing.verification import PROGRESS, CorruptCheckpointError, verify
from engine.distributed.errors import CollectiveError
from engine.strategies.fsdp import VerifiedFSDPStrategy
from lightning_modules.multimodal.checkpoints.stage_init import load_stage_weights, read_stage

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")


@pytest.fixture(params=[False, True], ids=["sync", "async"])
def strategy(request, monkeypatch):
    """Its first process, with the names that FSDP1 gave weights in a checkpoint."""

    def writes(self, checkpoint, path):
        if full.on:
            raise OSError(28, "No space left on device")
        optimizer = {"state": checkpoint.pop("state", {})}
        dcp.save({"model": checkpoint.pop("state_dict"), "optimizer_0": optimizer}, checkpoint_id=path, no_dist=True)
        torch.save(checkpoint, Path(path) / PROGRESS)

    full = SimpleNamespace(on=False)
    monkeypatch.setattr(VerifiedFSDPStrategy, "_write_shards", writes)
    monkeypatch.setattr(VerifiedFSDPStrategy, "is_global_zero", True)
    monkeypatch.setattr(VerifiedFSDPStrategy, "broadcast", lambda self, content: content)
    monkeypatch.setattr(VerifiedFSDPStrategy, "lightning_module", nn.Linear(1000, 1, bias=False))
    one = VerifiedFSDPStrategy()
    one.checkpoint_io = VerifiedCheckpointIO(asynchronous=request.param)
    one.optimizers, one.full = [], full
    return one


def content(step):
    weights = {"weight": torch.full((1, 1000), float(step))}
    return {"state_dict": weights, "saved_at": float(step), "pytorch-lightning_version": "2.6.6"}


def test_sharded_checkpoints_of_a_rotation_move_on_with_each_save(strategy, tmp_path):
    row = [tmp_path / name for name in ("last.ckpt", "last-1.ckpt")]
    strategy.checkpoint_io.set_rotation(row)
    for step in (1, 2, 3):
        strategy.save_checkpoint(content(step), row[0])
        strategy.checkpoint_io.sync_outcomes(strategy)
    strategy.checkpoint_io.sync_outcomes(strategy, last=True)
    assert [saved_at(path) for path in row] == [3.0, 2.0]
    assert {path.name for path in tmp_path.iterdir()} == {"last.ckpt", "last-1.ckpt"}
    for path in row:
        verify(path)
    assert strategy.load_checkpoint(row[0])["saved_at"] == 3.0
    assert (strategy.lightning_module.weight == 3).all()
    whole = strategy.checkpoint_io.load_checkpoint(row[1])
    assert (whole["state_dict"]["weight"] == 2).all()
    assert whole["saved_at"] == 2.0
    (row[0] / ".metadata").unlink()
    with pytest.raises(CorruptCheckpointError, match="last.ckpt is incomplete: .metadata.*--ckpt_path last"):
        strategy.load_checkpoint(row[0])


def test_a_kept_folder_survives_the_rotation(strategy, tmp_path):
    row = [tmp_path / name for name in ("last.ckpt", "last-1.ckpt")]
    strategy.checkpoint_io.set_rotation(row)
    for step in (1, 2, 3, 4):
        strategy.checkpoint_io.keep_next(row[0], tmp_path / "step-2.ckpt" if step == 2 else None)
        strategy.save_checkpoint(content(step), row[0])
        strategy.checkpoint_io.sync_outcomes(strategy)
    strategy.checkpoint_io.sync_outcomes(strategy, last=True)
    assert {path.name for path in tmp_path.iterdir()} == {"last.ckpt", "last-1.ckpt", "step-2.ckpt"}
    verify(tmp_path / "step-2.ckpt")
    assert saved_at(tmp_path / "step-2.ckpt") == 2.0


def test_a_failed_save_names_no_later_one(strategy, tmp_path):
    path = tmp_path / "last.ckpt"
    strategy.full.on = True
    strategy.checkpoint_io.keep_next(path, tmp_path / "step-1.ckpt")
    strategy.save_checkpoint(content(1), path)
    strategy.checkpoint_io.finish_writing()
    strategy.full.on = False
    strategy.checkpoint_io.keep_next(path, None)  # as LastCheckpoint does for a step that is not kept
    strategy.save_checkpoint(content(2), path)
    strategy.checkpoint_io.finish_writing()
    strategy.checkpoint_io.sync_outcomes(strategy)
    assert [found.name for found in tmp_path.iterdir()] == ["last.ckpt"]


def test_a_flipped_bit_of_a_shard_is_refused(strategy, tmp_path):
    """torch stores no checksum of shards: it loads what is there."""
    path = tmp_path / "last.ckpt"
    strategy.save_checkpoint(content(1), path)
    strategy.checkpoint_io.sync_outcomes(strategy, last=True)
    shard = next(path.glob("*.distcp"))
    octets = bytearray(shard.read_bytes())
    octets[len(octets) // 2] ^= 1
    shard.write_bytes(octets)
    with pytest.raises(
        CorruptCheckpointError, match=rf"corrupt: {shard.name} has changed since it was saved.*--ckpt_path"
    ):
        strategy.load_checkpoint(path)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"loops": None}, "last.ckpt is a whole file with wrong content: loops"),
        ({"pytorch-lightning_version": "1.9"}, "wrong content: pytorch-lightning_version"),
        ({"optimizer_states": [5]}, "wrong content: optimizer_states"),
    ],
)
def test_an_intact_checkpoint_with_wrong_content_is_refused(strategy, tmp_path, wrong, message):
    """The key is named before Lightning uses its value, as without shards."""
    path = tmp_path / "last.ckpt"
    strategy.save_checkpoint(content(1) | wrong, path)
    strategy.checkpoint_io.sync_outcomes(strategy, last=True)
    with pytest.raises(CorruptCheckpointError, match=f"{message}.*--ckpt_path last"):
        strategy.load_checkpoint(path)
    torch.save({"saved_at": 1.0}, tmp_path / "other.ckpt")
    with pytest.raises(CorruptCheckpointError, match="is not a Lightning checkpoint: it has no state_dict"):
        strategy.load_checkpoint(tmp_path / "other.ckpt")


def test_a_full_disk_keeps_the_older_checkpoint_and_raises_the_second_time(strategy, tmp_path):
    path = tmp_path / "last.ckpt"
    strategy.save_checkpoint(content(1), path)
    strategy.full.on = True
    for step in (2, 3):
        strategy.checkpoint_io.finish_writing()
        strategy.checkpoint_io.sync_outcomes(strategy)
        strategy.save_checkpoint(content(step), path)
    with pytest.raises(CollectiveError, match="2 times in a row: .*No space left"):
        strategy.checkpoint_io.sync_outcomes(strategy)
    assert saved_at(path) == 1.0
    assert [found.name for found in tmp_path.iterdir()] == ["last.ckpt"]


def test_a_folder_that_is_not_whole_gets_no_name(strategy, tmp_path, monkeypatch):
    def writes_a_part(self, checkpoint, path):
        Path(path).mkdir()
        (Path(path) / "__0_0.distcp").touch()

    monkeypatch.setattr(VerifiedFSDPStrategy, "_write_shards", writes_a_part)
    strategy.save_checkpoint(content(1), tmp_path / "last.ckpt")
    with pytest.raises(CollectiveError, match="is incomplete: .metadata"):
        strategy.checkpoint_io.sync_outcomes(strategy, last=True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (nn.Linear(1000, 1), "it lacks bias"),
        (nn.Linear(999, 1, bias=False), r"weight is \(1, 1000\), and \(1, 999\) in the model"),
        (nn.Identity(), "the model lacks its weight"),
    ],
)
def test_a_checkpoint_of_another_model_is_refused(strategy, monkeypatch, tmp_path, model, message):
    path = tmp_path / "last.ckpt"
    strategy.save_checkpoint(content(1), path)
    strategy.checkpoint_io.sync_outcomes(strategy, last=True)
    torch.save(content(1), tmp_path / "file.ckpt")
    monkeypatch.setattr(VerifiedFSDPStrategy, "lightning_module", model)
    for checkpoint in (path, tmp_path / "file.ckpt"):
        with pytest.raises(ValueError, match=f"{checkpoint.name} was written by another model or config: {message}"):
            strategy.load_checkpoint(checkpoint)


def test_an_index_with_code_is_not_run(strategy, tmp_path):
    """torch reads the index once more, by plain pickle."""
    path = tmp_path / "last.ckpt"
    strategy.save_checkpoint(content(1), path)
    strategy.checkpoint_io.sync_outcomes(strategy, last=True)
    (path / ".metadata").write_bytes(pickle.dumps(_Code(tmp_path / "ran")))
    with pytest.raises(CorruptMetadataError, match="corrupt: .metadata cannot be read .it refers to"):
        read_shards(path, strategy.lightning_module, [])
    with pytest.raises(dcp.CheckpointException):  # its message depends on the version of torch
        load_tensors(path, {"model.weight": torch.empty(1, 1000)}, alone=True)
    assert not (tmp_path / "ran").exists()


class _Code:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def trained(parameters):
    """(model, its optimizer of some parameters) after a step."""
    model = nn.Linear(1000, 1)
    optimizer = torch.optim.Adam([dict(model.named_parameters())[name] for name in parameters])
    model(torch.ones(1, 1000)).sum().backward()
    optimizer.step()
    return model, optimizer


@pytest.mark.parametrize("kind", ["shards", "shards of Lightning", "file"])
def test_optimizer_state_of_fewer_parameters_is_refused(strategy, monkeypatch, tmp_path, kind):
    """Otherwise Adam would silently restart for the rest."""
    model, optimizer = trained(["weight"])
    named = named_optimizer_state(model, optimizer)
    saved = content(1) | {"state_dict": model.state_dict(), "global_step": 1}
    path, expected = tmp_path / "last.ckpt", "it lacks the optimizer state of bias, which this config trains"
    if kind == "file":
        torch.save(saved | {"optimizer_states": [number_parameters(named)]}, path)
        expected = r"param_groups of \[1\] parameters, expected \[2\]"
    else:
        groups = {GROUPS: [named["param_groups"]]} if kind == "shards" else {}
        strategy.save_checkpoint(saved | groups | {"state": named["state"]}, path)
        strategy.checkpoint_io.sync_outcomes(strategy, last=True)
    model, both = trained(["weight", "bias"])
    monkeypatch.setattr(VerifiedFSDPStrategy, "lightning_module", model)
    strategy.optimizers = [both]
    with pytest.raises(ValueError, match=expected):
        strategy.load_checkpoint(path)
    strategy.optimizers = [torch.optim.Adam([model.weight])]
    strategy.load_checkpoint(path)
    loaded, expected = (each.state_dict()["state"][0]["exp_avg"] for each in (strategy.optimizers[0], optimizer))
    assert (loaded == expected).all()


def test_a_file_without_optimizer_state_is_refused(strategy, monkeypatch, tmp_path):
    model, optimizer = trained(["weight"])
    torch.save(content(1) | {"state_dict": model.state_dict(), "global_step": 1}, tmp_path / "last.ckpt")
    monkeypatch.setattr(VerifiedFSDPStrategy, "lightning_module", model)
    strategy.optimizers = [optimizer]
    with pytest.raises(ValueError, match="it has the state of 0 optimizers, expected 1"):
        strategy.load_checkpoint(tmp_path / "last.ckpt")


def test_shards_from_before_the_first_step_have_no_state(strategy, monkeypatch, tmp_path):
    path = tmp_path / "last.ckpt"
    strategy.save_checkpoint(content(1) | {"global_step": 0}, path)
    strategy.checkpoint_io.sync_outcomes(strategy, last=True)
    strategy.optimizers = [torch.optim.Adam(strategy.lightning_module.parameters())]
    assert strategy.load_checkpoint(path)["global_step"] == 0


def test_progress_is_flushed(monkeypatch, tmp_path):
    """The manifest vouches for it, also after a power failure."""
    flushed = []
    monkeypatch.setattr("engine.checkpointing.sharded.sharded_state.write_shards", lambda folder, weights, states: None)
    monkeypatch.setattr(
        "engine.strategies.sharded_checkpoint.os.fsync", lambda number: flushed.append(os.fstat(number).st_ino)
    )
    monkeypatch.setattr(VerifiedFSDPStrategy, "is_global_zero", True)
    VerifiedFSDPStrategy()._write_shards(content(1), tmp_path)
    assert flushed == [(tmp_path / PROGRESS).stat().st_ino]


def test_an_earlier_stage_is_read_from_shards(strategy, tmp_path):
    path = tmp_path / "last.ckpt"
    strategy.save_checkpoint(content(3) | {"global_step": 7}, path)
    strategy.checkpoint_io.sync_outcomes(strategy, last=True)
    stage, model = read_stage(path), nn.Linear(1000, 1, bias=False)
    assert load_stage_weights(model, stage, {}).taken == ["weight"]
    assert stage["global_step"] == 7
    assert (model.weight == 3).all()

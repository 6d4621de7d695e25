"""FSDP: what can be held without a GPU: refusals, and what becomes of the folders that torch writes."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.distributed.checkpoint as dcp
from lightning.pytorch.strategies import FSDPStrategy

from callbacks.last_checkpoint import LastCheckpoint
from engine.checkpoint_file import PROGRESS, DamagedCheckpoint, saved_at, verify
from engine.checkpoints import DurableCheckpointIO
from engine.faults import AgreedFailure
from engine.sharded_strategy import ShardedStrategy
from tests.conftest import REPOSITORY, TINY

OVERLAY = ["--config", str(REPOSITORY / "configs/overlays/fsdp.yaml")]

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_refused_without_gpus(lockstep):
    with pytest.raises(ValueError, match="shards a model over GPUs, but the accelerator is cpu: on CPUs use .*ddp_cpu"):
        lockstep("fit", *TINY, *OVERLAY, "--trainer.accelerator", "cpu", "--trainer.devices", "1", name="a")
    with pytest.raises(Exception, match="No supported gpu backend found"):
        lockstep("fit", *TINY, *OVERLAY, "--trainer.accelerator", "gpu", name="b")


def test_two_folders_are_needed():
    strategy = ShardedStrategy()
    trainer = SimpleNamespace(checkpoint_callbacks=[LastCheckpoint(keep=1)], state=SimpleNamespace(fn="fit"))
    with pytest.raises(ValueError, match="last_checkpoint.keep and best_checkpoint.keep must be at least 2"):
        strategy.setup(trainer)


def test_what_it_hands_on():
    strategy = ShardedStrategy("full", "SHARD_GRAD_OP", cpu_offload=True, wrap_from=1000)
    assert strategy.cpu_offload.offload_params and strategy.sharding_strategy.name == "SHARD_GRAD_OP"
    policy = strategy.kwargs["auto_wrap_policy"]
    small, large = torch.nn.Linear(10, 10), torch.nn.Linear(100, 100)
    assert not policy(module=small, recurse=False, nonwrapped_numel=110)
    assert policy(module=large, recurse=False, nonwrapped_numel=10_100)
    assert strategy.kwargs["use_orig_params"], "parameters keep their names, for groups, guards and the exact mean"


@pytest.fixture(params=[False, True], ids=["sync", "async"])
def strategy(request, monkeypatch):
    """Its first process; torch writes the shards of a whole model without GPUs."""

    def writes(self, checkpoint, path, storage_options):
        if full.on:
            raise OSError(28, "No space left on device")
        dcp.save({"model": checkpoint.pop("state_dict")}, checkpoint_id=path, no_dist=True)
        torch.save(checkpoint, Path(path) / PROGRESS)

    full = SimpleNamespace(on=False)
    monkeypatch.setattr(FSDPStrategy, "save_checkpoint", writes)
    monkeypatch.setattr(FSDPStrategy, "load_checkpoint", lambda self, path, weights_only: (path, weights_only))
    monkeypatch.setattr(ShardedStrategy, "is_global_zero", True)
    monkeypatch.setattr(ShardedStrategy, "broadcast", lambda self, content: content)
    one = ShardedStrategy()
    one.checkpoint_io = DurableCheckpointIO(asynchronous=request.param)
    one.full = full
    return one


def content(step):
    return {"state_dict": {"weight": torch.full((1000,), float(step))}, "saved_at": float(step)}


def test_folders_in_a_row(strategy, tmp_path):
    row = [tmp_path / name for name in ("last.ckpt", "last-1.ckpt")]
    strategy.checkpoint_io.keep(row)
    for step in (1, 2, 3):
        strategy.save_checkpoint(content(step), row[0])
        strategy.checkpoint_io.agree(strategy)
    strategy.checkpoint_io.finish()
    assert [saved_at(path) for path in row] == [3.0, 2.0]
    assert {path.name for path in tmp_path.iterdir()} == {"last.ckpt", "last-1.ckpt"}
    for path in row:
        verify(path)
    assert strategy.load_checkpoint(row[0]) == (row[0], True)
    (row[0] / ".metadata").unlink()
    with pytest.raises(DamagedCheckpoint, match="last.ckpt is not whole: .metadata.*--ckpt_path last"):
        strategy.load_checkpoint(row[0])


def test_a_flipped_bit(strategy, tmp_path):
    """torch stores no checksum of shards: it loads what is there."""
    path = tmp_path / "last.ckpt"
    strategy.save_checkpoint(content(1), path)
    strategy.checkpoint_io.finish()
    shard = next(path.glob("*.distcp"))
    octets = bytearray(shard.read_bytes())
    octets[len(octets) // 2] ^= 1
    shard.write_bytes(octets)
    with pytest.raises(DamagedCheckpoint, match=rf"damaged: {shard.name} has changed since it was saved.*--ckpt_path"):
        strategy.load_checkpoint(path)


def test_a_full_disk(strategy, tmp_path):
    path = tmp_path / "last.ckpt"
    strategy.save_checkpoint(content(1), path)
    strategy.full.on = True
    for step in (2, 3):
        strategy.checkpoint_io.finish_writing()
        strategy.checkpoint_io.agree(strategy)
        strategy.save_checkpoint(content(step), path)
    with pytest.raises(AgreedFailure, match="2 times in a row: .*No space left"):
        strategy.checkpoint_io.agree(strategy)
    assert saved_at(path) == 1.0 and [found.name for found in tmp_path.iterdir()] == ["last.ckpt"]


def test_a_folder_that_is_not_whole_gets_no_name(strategy, tmp_path, monkeypatch):
    def writes_a_part(self, checkpoint, path, options):
        Path(path).mkdir()
        (Path(path) / "__0_0.distcp").touch()

    monkeypatch.setattr(FSDPStrategy, "save_checkpoint", writes_a_part)
    strategy.save_checkpoint(content(1), tmp_path / "last.ckpt")
    with pytest.raises(AgreedFailure, match="is not whole: .metadata"):
        strategy.checkpoint_io.agree(strategy, last=True)
    assert list(tmp_path.iterdir()) == []

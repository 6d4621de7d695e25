"""A rollback uses the newest good checkpoint of the current trajectory."""

from types import SimpleNamespace

import pytest
import torch

from engine.checkpointing.checkpoint_io import VerifiedCheckpointIO
from engine.checkpointing.rollback import roll_back
from engine.distributed.errors import CollectiveError


class Start:
    """Stand-in for a trainer: a start of a run in a folder."""

    is_global_zero = True

    def __init__(self, folder, ckpt_path=None):
        self.default_root_dir, self.ckpt_path = folder, ckpt_path
        self.model = torch.nn.Linear(2, 1)
        self.optimizer = torch.optim.Adam(self.model.parameters())
        plugin = VerifiedCheckpointIO()
        names = ("last.ckpt", "last-1.ckpt", "last-2.ckpt")
        self.row = [folder / "checkpoints" / name for name in names]
        plugin.set_rotation(self.row)
        self.strategy = SimpleNamespace(
            checkpoint_io=plugin, broadcast=lambda content: content, load_checkpoint=plugin.load_checkpoint
        )
        if ckpt_path is not None:
            plugin.record_resumed(plugin.load_checkpoint(ckpt_path)["saved_at"])

    def save(self, step, value, path=None):
        weights = {name: torch.full_like(weight, value) for name, weight in self.model.state_dict().items()}
        checkpoint = {"state_dict": weights, "optimizer_states": [self.optimizer.state_dict()], "global_step": step}
        checkpoint |= {"epoch": 0, "pytorch-lightning_version": "2.6.6"}
        self.strategy.checkpoint_io.save_checkpoint(checkpoint, path or self.row[0])

    def roll_back(self):
        path, step = roll_back(self, self.model, self.optimizer, "step 9: NaN")
        return path.name, step, float(self.model.bias.detach())


def test_rollback_loads_neither_the_future_nor_another_trajectory(tmp_path):
    first = Start(tmp_path)
    best = tmp_path / "checkpoints/best.ckpt"
    first.save(5, 0.5, best)
    first.save(30, 3.0)
    second = Start(tmp_path, best)
    assert second.roll_back() == ("best.ckpt", 5, 0.5)
    second.save(7, 0.75)
    assert second.roll_back() == ("last.ckpt", 7, 0.75)
    with pytest.raises(CollectiveError, match="step 9: NaN\nThere is no checkpoint to roll back to: .* of this start"):
        Start(tmp_path).roll_back()


def test_rollback_reads_the_checkpoint_of_another_run(tmp_path):
    other = Start(tmp_path / "other")
    other.save(5, 0.5)
    assert Start(tmp_path / "own", other.row[0]).roll_back() == ("last.ckpt", 5, 0.5)


def test_corrupt_and_non_finite_checkpoints_are_skipped(tmp_path, messages):
    start = Start(tmp_path)
    for step, value in ((1, 0.1), (2, float("nan")), (3, 0.3)):
        start.save(step, value)
    start.row[0].write_bytes(start.row[0].read_bytes()[:300])
    assert start.roll_back() == ("last-2.ckpt", 1, pytest.approx(0.1))
    assert "skipping last-1.ckpt: rank 0: weight is not finite in it" in messages[-1]
    start.row[2].unlink()
    with pytest.raises(CollectiveError, match="not to .*last-1.ckpt .rank 0: weight is not finite"):
        start.roll_back()


def test_a_clock_that_is_behind(tmp_path, monkeypatch):
    start = Start(tmp_path)
    start.save(5, 0.5)
    again = Start(tmp_path, start.row[0])
    monkeypatch.setattr("time.time", lambda: 1000.0)
    for step in (6, 7):
        again.save(step, step)
        assert again.roll_back()[:2] == ("last.ckpt", step)

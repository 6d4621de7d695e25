"""A run resumes from every checkpoint it has saved as if it had not stopped, with any schedule of validations."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.checkpointing.checkpoint_io import VerifiedCheckpointIO
from tests.support.families.tiny_linear import TINY_FAMILY
from tests.tiers import slow

OPTIONS = [*TINY_FAMILY, "--data.init_args.batch_size", "10", "--last_checkpoint.every_n_steps", "3"]
"""5 steps in an epoch, and saves within it, at its end and in its validation."""

BY_STEPS = {"max_epochs": -1, "max_steps": 17}


class Copies:
    """Copies of all checkpoints that a run saves, in their order."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files: list[Path] = []

    def save(self, path: Path) -> None:
        copy = self.folder / str(len(self.files)) / path.name
        copy.parent.mkdir(parents=True)
        shutil.copy(path, copy)
        self.files.append(copy)


@pytest.fixture
def saves(tmp_path, monkeypatch):
    """Returns a function that begins to copy what is saved, into a folder of a name."""
    plain, current = VerifiedCheckpointIO.save_checkpoint, []

    def save_checkpoint(self: VerifiedCheckpointIO, checkpoint: dict[str, Any], path: Path, **options: Any) -> None:
        plain(self, checkpoint, path, **options)
        current[-1].save(Path(path))

    def begin(name: str) -> Copies:
        current.append(Copies(tmp_path / "copies" / name))
        return current[-1]

    monkeypatch.setattr(VerifiedCheckpointIO, "save_checkpoint", save_checkpoint)
    return begin


def position(path: Path) -> dict[str, Any]:
    """Return the progress of the training that a checkpoint holds."""
    content = torch.load(path, weights_only=True)
    loops = content["loops"]["fit_loop"]
    progress = {key: loops[key] for key in ("epoch_progress", "epoch_loop.batch_progress")}
    return {"global_step": content["global_step"], "epoch": content["epoch"], "data": content["TinyData"], **progress}


@pytest.mark.parametrize(
    ("trainer", "micro_batch"),
    [
        ({**BY_STEPS, "check_val_every_n_epoch": 2}, 10),
        slow({**BY_STEPS, "check_val_every_n_epoch": 2}, 5),
        slow(BY_STEPS, 10),
        slow({"max_epochs": 4, "check_val_every_n_epoch": 2}, 5),
        slow({"max_epochs": 3, "max_steps": 40}, 10),
        slow({**BY_STEPS, "limit_val_batches": 0}, 10),
        slow({**BY_STEPS, "val_check_interval": 2}, 10),
        slow({**BY_STEPS, "val_check_interval": 4, "check_val_every_n_epoch": "null"}, 10),
        slow({**BY_STEPS, "limit_train_batches": 4, "check_val_every_n_epoch": 2}, 10),
    ],
    ids=str,
)
def test_a_run_resumes_from_every_save_to_the_bit(trainer, micro_batch, lockstep, saves):
    """Since a resumed run also saves what the whole run saves there, any number of stops changes nothing."""
    options = [*OPTIONS, f"--data.init_args.micro_batch_size={micro_batch}"]
    options += [f"--trainer.{key}={value}" for key, value in trainer.items()]
    whole_saves = saves("whole")
    uninterrupted = lockstep("fit", *options, name="whole")
    losses, metrics = uninterrupted.series("train/loss"), uninterrupted.series("val/loss")
    assert len(whole_saves.files) >= 5
    for number, file in enumerate(whole_saves.files):
        name = f"resumed-{number}"
        folder = uninterrupted.folder.with_name(name) / "checkpoints"
        folder.mkdir(parents=True)
        shutil.copy(file, folder / file.name)
        resumed_saves = saves(name)
        resumed = lockstep("fit", *options, "--ckpt_path", "last", name=name)
        step = torch.load(file, weights_only=True)["global_step"]
        series = resumed.series("train/loss")
        series.pop(step, None)  # the checkpoint has the metrics of its step
        assert series == {at: loss for at, loss in losses.items() if at > step}, file
        series = resumed.series("val/loss")
        assert series.items() <= metrics.items(), file
        assert {at for at in metrics if at > step} <= set(series), file
        assert position(resumed.folder / "checkpoints/last.ckpt")["global_step"] == max(losses)
        following = {(copy.name, position(copy)["global_step"]): position(copy) for copy in whole_saves.files[number:]}
        for copy in resumed_saves.files:
            again = position(copy)
            assert again == following[copy.name, again["global_step"]], f"{copy.name} after a resume from {file}"

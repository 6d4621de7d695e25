"""Tests the selection of the checkpoint that a command begins with."""

import os
from pathlib import Path

import pytest
import torch

from commands.runs.checkpoint_selection import (
    earlier_stage,
    newest_checkpoint_since_start,
    record_existing_checkpoints,
    resolve_checkpoint,
)
from tests.commands.runs.checkpoints import corrupt, write_checkpoint


def test_a_shipped_config_is_found_from_any_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = "vision_language-pretrain-20260101-120000"
    write_checkpoint(tmp_path / "runs" / name, "best.ckpt", age=0)
    assert earlier_stage("configs/vision_language/pretrain.yaml", Path("runs")).parts[-3] == name
    with pytest.raises(FileNotFoundError, match="train one first .* or name one with --model.init_args.init_from NAME"):
        earlier_stage("configs/vision_language/sft.yaml", Path("runs"))
    with pytest.raises(FileNotFoundError, match="there is no config configs/vision_language/pretrian.yaml"):
        earlier_stage("configs/vision_language/pretrian.yaml", Path("runs"))


def test_best_and_last_resolve_to_the_checkpoints_that_exist(tmp_path, messages):
    assert resolve_checkpoint(None, tmp_path) is None
    assert resolve_checkpoint("last", tmp_path) is None
    with pytest.raises(FileNotFoundError, match="best.ckpt does not exist, nor any other"):
        resolve_checkpoint("best", tmp_path)
    checkpoint = write_checkpoint(tmp_path, "epoch-3.ckpt")
    with pytest.raises(FileNotFoundError, match="last.ckpt does not exist, but there are epoch-3.ckpt"):
        resolve_checkpoint("last", tmp_path)
    with pytest.raises(FileNotFoundError, match="best.ckpt does not exist, but in .* there is epoch-3.ckpt"):
        resolve_checkpoint("best", tmp_path)
    assert resolve_checkpoint(str(checkpoint), tmp_path / "elsewhere") == checkpoint
    only = write_checkpoint(tmp_path / "final", "last.ckpt")
    assert resolve_checkpoint("best", tmp_path / "final") == only, "a run without validations"
    assert any("best.ckpt does not exist" in line and "using last.ckpt" in line for line in messages)
    best = write_checkpoint(tmp_path, "best.ckpt")
    assert resolve_checkpoint("last", tmp_path) == best, "killed before the first last.ckpt"
    last = write_checkpoint(tmp_path, "last.ckpt", age=-20)
    assert (resolve_checkpoint("last", tmp_path), resolve_checkpoint("best", tmp_path)) == (last, best)
    preempted = write_checkpoint(tmp_path, "hpc_ckpt_1.ckpt", age=-30, within=".")  # by SLURM's signal, after last.ckpt
    assert resolve_checkpoint("last", tmp_path) == preempted


def test_last_is_what_was_saved_last(tmp_path):
    """The newest checkpoint follows from its content, not from its file's time, which a copy changes."""
    ages = {"last.ckpt": 30, "last-1.ckpt": 40, "best.ckpt": 20, "best-2.ckpt": 10}
    paths = {name: write_checkpoint(tmp_path, name, age) for name, age in ages.items()}
    os.utime(paths["last-1.ckpt"], (1_800_000_000, 1_800_000_000))
    assert resolve_checkpoint("last", tmp_path) == paths["best-2.ckpt"]
    assert resolve_checkpoint("last", tmp_path / "other") is None
    old = write_checkpoint(tmp_path, "last-2.ckpt", age=5, with_time=False)
    assert resolve_checkpoint("last", tmp_path) == old, "written before checkpoints had a time"


def test_the_newest_checkpoint_that_verifies_is_taken(tmp_path, messages):
    """Plain Lightning takes the newest by its time and ends with `OSError: [Errno 22] Invalid argument`."""
    last = write_checkpoint(tmp_path, "last.ckpt")
    before = write_checkpoint(tmp_path, "last-1.ckpt", age=10)
    best = write_checkpoint(tmp_path, "best.ckpt", age=20)
    last.write_bytes(last.read_bytes()[:-2000])
    assert resolve_checkpoint("last", tmp_path) == before
    assert any(line.startswith("skipping last.ckpt:") and "truncated" in line for line in messages), messages
    assert "using last-1.ckpt instead" in messages
    corrupt(before)
    messages.clear()
    assert resolve_checkpoint("last", tmp_path) == best
    assert any("last-1.ckpt is corrupt: data/0 has changed since it was saved" in line for line in messages), messages
    best.write_bytes(b"")
    with pytest.raises(ValueError, match="none of them is intact: .*--ckpt_path FILE") as refused:
        resolve_checkpoint("last", tmp_path)
    assert all(f"{path.name} (" in str(refused.value) for path in (last, before, best))


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ({"weight": torch.zeros(3)}, "it has no state_dict and no pytorch-lightning_version"),
        ({"state_dict": {}}, "it has no pytorch-lightning_version"),
    ],
)
def test_a_file_of_weights_in_place_of_the_last_checkpoint_is_skipped(tmp_path, messages, content, problem):
    """The file verifies, but the training could not load it."""
    before = write_checkpoint(tmp_path, "last-1.ckpt", age=10)
    torch.save(content, before.with_name("last.ckpt"))
    assert resolve_checkpoint("last", tmp_path) == before
    assert any(line.startswith("skipping last.ckpt:") and problem in line for line in messages), messages


def test_without_best_and_last_the_newest_intact_checkpoint_is_taken(tmp_path, messages):
    """A run without validations whose last.ckpt is absent: `last` finds its predecessor, so `best` does, too."""
    before = write_checkpoint(tmp_path, "last-1.ckpt", age=10)
    assert resolve_checkpoint("best", tmp_path) == before
    assert any("best.ckpt does not exist" in line and "using last-1.ckpt" in line for line in messages), messages


def test_an_earlier_stage_without_best_is_its_newest_intact_checkpoint(tmp_path, messages):
    run = tmp_path / "aligned"
    before = write_checkpoint(run, "last-1.ckpt", age=10)
    last = write_checkpoint(run, "last.ckpt")
    assert earlier_stage("aligned", tmp_path) == last
    corrupt(last)
    assert earlier_stage("aligned", tmp_path) == before
    assert any(line.startswith("skipping last.ckpt:") for line in messages), messages
    corrupt(before)
    with pytest.raises(ValueError, match=r"last.ckpt is corrupt: data/0 has changed since it was saved"):
        earlier_stage("aligned", tmp_path)
    best = write_checkpoint(run, "best.ckpt", age=20)
    assert earlier_stage("aligned", tmp_path) == best


def test_only_checkpoints_saved_since_the_start_count(tmp_path, messages):
    old = write_checkpoint(tmp_path, "last.ckpt")
    assert newest_checkpoint_since_start(tmp_path) == old, "begun before beginnings were noted"
    record_existing_checkpoints(tmp_path)
    assert newest_checkpoint_since_start(tmp_path) is None
    old.rename(old.with_name("last-1.ckpt"))
    assert newest_checkpoint_since_start(tmp_path) is None, "the same under another name"
    new = write_checkpoint(tmp_path, "last.ckpt", age=-10)
    assert newest_checkpoint_since_start(tmp_path) == new
    new.write_bytes(new.read_bytes()[:-2000])
    assert newest_checkpoint_since_start(tmp_path) is None
    old.with_name("last-1.ckpt").unlink()
    assert newest_checkpoint_since_start(tmp_path) is None
    assert "none of them is intact" in messages[-1]
    new.unlink()
    record_existing_checkpoints(tmp_path)
    assert newest_checkpoint_since_start(tmp_path) is None


def test_a_device_or_a_pipe_is_no_checkpoint(tmp_path):
    """Reading /dev/zero takes all memory, and reading a pipe waits for ever."""
    os.mkfifo(tmp_path / "pipe")
    for path in ("/dev/zero", str(tmp_path / "pipe")):
        with pytest.raises(ValueError, match="is not a regular file, expected a checkpoint"):
            resolve_checkpoint(path, tmp_path)
        with pytest.raises(FileNotFoundError, match="is not a checkpoint, a run with checkpoints or a config"):
            earlier_stage(path, tmp_path)

"""best.ckpt and last.ckpt."""

import pytest
import torch

from callbacks.checkpointing import LastCheckpoint
from tests.conftest import TINY


def steps_of(folder):
    return {
        path.name: torch.load(path, weights_only=True)["global_step"] for path in (folder / "checkpoints").iterdir()
    }


def test_best_and_last_are_apart(lockstep):
    """The best stays where the metric was best; the last follows the training (Lightning's `save_last` would not)."""
    # At this rate the model gets worse after its first epoch.
    rates = ["--model.init_args.learning_rate", "3", "--model.init_args.warmup_steps", "0"]
    run = lockstep(
        "fit", *TINY, *rates, "--trainer.max_epochs", "3", "--best_checkpoint.monitor", "val/mrr@20", name="a"
    )
    figures = run.series("val/mrr@20")
    best = max(figures, key=figures.__getitem__)
    assert steps_of(run.folder) == {"best.ckpt": best, "last.ckpt": 39, "last-1.ckpt": 26}
    low = lockstep("fit", *TINY, *rates, "--trainer.max_epochs", "3", "--best_checkpoint.monitor", "val/mrr@20",
                   "--best_checkpoint.mode", "min", name="b")  # fmt: skip
    assert steps_of(low.folder)["best.ckpt"] == min(figures, key=figures.__getitem__) != best


def test_the_last_is_saved_inside_an_epoch(lockstep):
    run = lockstep("fit", *TINY, "--last_checkpoint.every_n_steps", "4", "--trainer.max_steps", "7", name="a")
    assert steps_of(run.folder) == {"last.ckpt": 7, "last-1.ckpt": 4}, "also at the end of a run that is bounded by steps"


def test_checkpoints_load_without_running_code(trained):
    """weights_only refuses everything but tensors and plain containers."""
    for path in (trained / "runs").rglob("*.ckpt"):
        checkpoint = torch.load(path, weights_only=True)
        assert {"state_dict", "optimizer_states", "lr_schedulers", "global_step", "epoch"} <= checkpoint.keys()


def test_a_checkpoint_every_no_step():
    with pytest.raises(ValueError, match="last_checkpoint.every_n_steps must be at least 1, got 0"):
        LastCheckpoint(every_n_steps=0)

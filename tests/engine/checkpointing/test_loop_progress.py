"""Tests that counters of a checkpoint become those of the run that resumes from it."""

import re

import pytest

from engine.checkpointing.loop_progress import check_epochs, convert_progress

STEPS = 3
"""Optimizer steps before the checkpoint."""


@pytest.mark.parametrize(("saved", "now"), [(1, 1), (2, 2), (2, 4), (4, 1), (1, 8)])
@pytest.mark.parametrize("behind", [0, 1], ids=["in a validation", "in on_train_batch_end"])
def test_counters_are_of_the_same_step_with_another_accumulation(saved, now, behind):
    done = STEPS * saved
    counters = {"ready": done, "started": done, "processed": done, "completed": done - behind}
    progress = {"total": dict(counters), "current": dict(counters)}
    convert_progress({"loops": {"fit_loop": {"epoch_loop.batch_progress": progress}}}, saved, now)
    done = STEPS * now
    assert progress["total"] == {"ready": done, "started": done, "processed": done, "completed": done - behind}
    assert progress["current"] == progress["total"]


@pytest.mark.parametrize("max_epochs", [None, -1, 4, 5])
def test_a_checkpoint_of_no_more_epochs_is_resumed(max_epochs):
    check_epochs(finished_epochs(4), max_epochs, "last.ckpt")


@pytest.mark.parametrize("max_epochs", [1, 3])
def test_a_checkpoint_of_more_epochs_than_the_run_is_refused(max_epochs):
    message = f"trainer.max_epochs: found {max_epochs}, expected at least 4, the finished epochs of last.ckpt; set "
    with pytest.raises(ValueError, match=re.escape(message + "--trainer.max_epochs 5 or more to train on")):
        check_epochs(finished_epochs(4), max_epochs, "last.ckpt")


def finished_epochs(number):
    return {"loops": {"fit_loop": {"epoch_progress": {"current": {"processed": number}}}}}

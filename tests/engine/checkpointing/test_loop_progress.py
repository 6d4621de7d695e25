"""Counters of a checkpoint become those of the run that resumes from it."""

import pytest

from engine.checkpointing.loop_progress import convert_progress

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

"""Names the keys under which Lightning saves the progress of its loops in a checkpoint; they are not documented.

A key joins the attributes that lead from the fit loop to an object, some of them private.
"""

from collections.abc import Mapping
from typing import Any

LOOPS = "loops"
FIT_LOOP = "fit_loop"
"""Key in LOOPS; the keys below are in its value."""

EPOCHS = "epoch_progress"
BATCHES = "epoch_loop.batch_progress"
"""Micro-batches of the training."""
OPTIMIZER_STEPS = "epoch_loop.automatic_optimization.optim_progress"
MANUAL_OPTIMIZER_STEPS = "epoch_loop.manual_optimization.optim_step_progress"
SCHEDULER_STEPS = "epoch_loop.scheduler_progress"
FIT_LOOP_STATE = "state_dict"
EPOCH_LOOP_STATE = "epoch_loop.state_dict"
LOG_STEPS = "_batches_that_stepped"
"""Key in EPOCH_LOOP_STATE: finished optimizer steps, which intervals of logging refer to."""
VALIDATION_BATCHES = "epoch_loop.val_loop.batch_progress"
VALIDATION_LOOP_STATE = "epoch_loop.val_loop.state_dict"

EVALUATION_BATCHES = "batch_progress"
"""Key in the loops of `validate`, `test` and `predict`."""
EVALUATION_LOOP_STATE = "state_dict"


def fit_loop(checkpoint: Mapping[str, Any]) -> dict[str, Any]:
    """Return the state of the fit loop in a checkpoint; empty if the checkpoint has none."""
    state: dict[str, Any] = checkpoint.get(LOOPS, {}).get(FIT_LOOP, {})
    return state

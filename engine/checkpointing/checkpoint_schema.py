"""Checks the content of a checkpoint: the keys of Lightning, and the keys that other packages declare.

A part is declared where it is written: `declare_part("frozen", each(INTEGER))`, `declare_callback("FiniteGuard", ...)`.
Undeclared keys are not checked; a user's own callbacks may have written them.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from engine.checkpointing.compatibility import require_lightning
from engine.checkpointing.frozen_weights import FROZEN_KEY
from engine.checkpointing.schema import (
    COUNT,
    FLAG,
    INTEGER,
    MAPPING,
    METRIC,
    NUMBER,
    TENSOR,
    Rule,
    each,
    fields,
    find_problem,
    kind,
    list_of,
    optional,
)
from engine.checkpointing.verification import CorruptCheckpointError
from engine.lightning_internals import checkpoint_layout as layout

# Lightning's counters of progress: a loop resets `current`, and never `total`.
_TRACKER = fields({"ready": COUNT, "completed": COUNT}, {"started": COUNT, "processed": COUNT})
_BATCHES = fields({"ready": COUNT, "started": COUNT, "processed": COUNT, "completed": COUNT})
_PROGRESS = fields({"total": _TRACKER, "current": _TRACKER}, {"is_last_batch": FLAG})
_BATCH_PROGRESS = fields({"total": _BATCHES, "current": _BATCHES, "is_last_batch": FLAG})

_FIT_LOOP = fields(
    {
        layout.BATCHES: _BATCH_PROGRESS,
        layout.OPTIMIZER_STEPS: fields({"optimizer": fields({"step": _PROGRESS, "zero_grad": _PROGRESS})}),
        layout.EPOCHS: fields({"total": _BATCHES, "current": _BATCHES}),
    },
    {
        layout.FIT_LOOP_STATE: fields({}, {"combined_loader": list_of(MAPPING, length=1)}),
        layout.EPOCH_LOOP_STATE: fields({}, {layout.LOG_STEPS: COUNT}),
        layout.SCHEDULER_STEPS: _PROGRESS,
        layout.MANUAL_OPTIMIZER_STEPS: _PROGRESS,
        layout.VALIDATION_BATCHES: _BATCH_PROGRESS,
        layout.VALIDATION_LOOP_STATE: MAPPING,
    },
)
_EVALUATION_LOOP = fields({}, {layout.EVALUATION_LOOP_STATE: MAPPING, layout.EVALUATION_BATCHES: _BATCH_PROGRESS})
_LOOPS = fields(
    {layout.FIT_LOOP: _FIT_LOOP},
    {
        "validate_loop": _EVALUATION_LOOP,
        "test_loop": _EVALUATION_LOOP,
        "predict_loop": fields({}, {layout.EVALUATION_LOOP_STATE: MAPPING, layout.EVALUATION_BATCHES: _PROGRESS}),
    },
)

_OPTIMIZER = fields(
    {"state": each(MAPPING, names=int), "param_groups": list_of(fields({"params": list_of(COUNT)}))},
)
"""{number of a parameter: its state}; `check_optimizer_state` checks the states against the parameters."""

_SCHEDULER = fields(
    {"last_epoch": COUNT},
    {
        "_step_count": COUNT,
        "base_lrs": list_of(NUMBER),
        "_last_lr": list_of(NUMBER),
        "lr_lambdas": list_of(optional(MAPPING)),
    },
)

# Lightning upgrades checkpoints of its versions before 2, whose form the rules do not describe.
_VERSION = re.compile(r"[2-9]\.\d+(\.\d+)?(\.?(a|b|rc|dev|post)\d+)*(\+[a-z0-9.]+)?")

_EXTRA_STATE = "_extra_state"
"""Last part of the key under which torch saves what `get_extra_state` of a layer returns, of any type."""


def _weights(value: object, key: str) -> Iterator[str]:
    if isinstance(value, dict):
        value = {name: item for name, item in value.items() if not str(name).endswith(_EXTRA_STATE)}
    yield from each(TENSOR)(value, key)


_LIGHTNING = {
    "pytorch-lightning_version": kind(
        "a version of Lightning from 2.0 on", lambda value: isinstance(value, str) and bool(_VERSION.fullmatch(value))
    ),
    "state_dict": _weights,
    layout.LOOPS: _LOOPS,
    # A LockstepModule has one optimizer and one scheduler.
    "optimizer_states": list_of(_OPTIMIZER, length=1),
    "lr_schedulers": list_of(_SCHEDULER, length=1),
    "epoch": COUNT,
    "global_step": COUNT,
    "saved_at": NUMBER,
    "unlogged_metrics": each(METRIC),
    FROZEN_KEY: each(INTEGER),
}

_parts: dict[str, Rule] = dict(_LIGHTNING)
_callbacks: dict[str, Rule] = {}


def declare_part(key: str, rule: Rule) -> None:
    """Declare what a key of a checkpoint holds."""
    _parts[key] = rule


def declare_callback(name: str, rule: Rule) -> None:
    """Declare the state of a callback, by the name of its class."""
    _callbacks[name] = rule


def require_checkpoint(content: Mapping[str, object], path: Path) -> None:
    """Check that a file or folder holds a checkpoint of a run: the keys of Lightning, and the right values.

    Args:
        content: content of the file; of a sharded checkpoint it may lack weights and optimizer state.
        path: the file or folder.

    Raises:
        ValueError: a key of Lightning's is missing.
        CorruptCheckpointError: a key holds the wrong kind of value. It is a ValueError, too.
    """
    # The weights of a sharded checkpoint are in its shards.
    require_lightning({"state_dict": {}, **content} if path.is_dir() else content, path)
    require_structure(content, path)


def require_structure(checkpoint: Mapping[str, object], path: Path) -> None:
    """Check that each known key of a checkpoint holds the kind of value that was saved under it.

    Args:
        checkpoint: content of the file.
        path: the file, for the message.

    Raises:
        CorruptCheckpointError: names the file, the first wrong key, and what it holds.
    """
    problem = find_problem(dict(checkpoint), fields({}, {**_parts, "callbacks": _callback_states}))
    if problem is not None:
        raise CorruptCheckpointError(f"{path} is a whole file with wrong content: {problem}")


def _callback_states(value: object, key: str) -> Iterator[str]:
    yield from MAPPING(value, key)
    for name, state in value.items() if isinstance(value, dict) else ():
        # Lightning's state keys are the name of the class, with settings in braces for some: EarlyStopping{...}.
        rule = _callbacks.get(name.partition("{")[0], MAPPING) if isinstance(name, str) else MAPPING
        yield from rule(state, f"{key}.{name}")

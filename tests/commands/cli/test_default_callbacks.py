"""Tests which callbacks are Lockstep's own."""

import pytest
from lightning.pytorch import Callback
from lightning.pytorch.callbacks import ModelCheckpoint

from callbacks.checkpointing.final_validation import FinalValidation
from callbacks.guards.replica_consistency import ReplicaConsistencyCheck
from callbacks.performance.stragglers import Stragglers
from commands.cli.default_callbacks import is_default_callback
from tests.support.families.tiny_linear import TINY_FAMILY

STEP_HOOKS = (
    "on_train_batch_start", "on_before_zero_grad", "on_before_backward", "on_after_backward",
    "on_before_optimizer_step", "on_train_batch_end",
)  # fmt: skip


class UserCallback(FinalValidation):
    """A user may call the hooks that it inherits."""


def test_callbacks_of_users_and_of_lightning_are_not_own():
    assert is_default_callback(FinalValidation())
    assert not any(map(is_default_callback, (UserCallback(), ModelCheckpoint(), Callback())))


class ListsCallbacks(Callback):
    """Lists in a step which callbacks Lightning calls, and the empty hooks that it calls of Lockstep's callbacks."""

    names: list[str]
    empty: list[str]

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        cls = type(self)
        cls.names = [type(callback).__name__ for callback in trainer.callbacks]
        cls.empty = [
            f"{type(callback).__name__}.{hook}"
            for callback in trainer.callbacks
            if is_default_callback(callback)
            for hook in STEP_HOOKS
            if callable(bound := getattr(callback, hook)) and bound.__func__ is getattr(Callback, hook)
        ]


@pytest.fixture
def trained(lockstep):
    """A training whose second step has filled `ListsCallbacks`. Lightning takes about 10 us for each call."""
    own = f"--trainer.callbacks+={__name__}.ListsCallbacks"
    data = ["--data.init_args.length", "20", "--data.init_args.batch_size", "8"]
    lockstep("fit", *TINY_FAMILY, *data, own, "--trainer.max_steps", "2", name="a")
    assert {"RunLog", "FinalValidation", "ListsCallbacks"} <= set(ListsCallbacks.names)


@pytest.mark.usefixtures("trained")
def test_no_empty_hook_is_called_in_a_step():
    assert ListsCallbacks.empty == []


@pytest.mark.usefixtures("trained")
def test_callbacks_that_compare_ranks_leave_a_training_on_one_rank():
    assert not {ReplicaConsistencyCheck.__name__, Stragglers.__name__} & set(ListsCallbacks.names)

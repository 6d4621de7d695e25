"""Tests which callbacks are Lockstep's own."""

from lightning.pytorch import Callback
from lightning.pytorch.callbacks import ModelCheckpoint

from callbacks.checkpointing.final_validation import FinalValidation
from commands.cli.default_callbacks import is_default_callback
from tests.support.families.tiny_linear import TINY_FAMILY

STEP_HOOKS = ("on_train_batch_start", "on_before_backward", "on_after_backward", "on_train_batch_end")


class OfAUser(FinalValidation):
    """A user may call the hooks that it inherits."""


def test_callbacks_of_users_and_of_lightning_are_not_own():
    assert is_default_callback(FinalValidation())
    assert not any(map(is_default_callback, (OfAUser(), ModelCheckpoint(), Callback())))


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


def test_a_step_calls_no_empty_hook_and_no_callback_that_has_nothing_to_do(lockstep):
    """Lightning takes about 10 us for each call in each step."""
    own = f"--trainer.callbacks+={__name__}.ListsCallbacks"
    data = ["--data.init_args.length", "20", "--data.init_args.batch_size", "8"]
    lockstep("fit", *TINY_FAMILY, *data, own, "--trainer.max_steps", "2", name="a")
    assert {"RunLog", "FinalValidation", "ListsCallbacks"} <= set(ListsCallbacks.names)
    assert not ListsCallbacks.empty
    alone = {"ReplicaConsistencyCheck", "Stragglers"}  # they compare ranks
    assert not alone & set(ListsCallbacks.names), "a run of one process has no other rank"

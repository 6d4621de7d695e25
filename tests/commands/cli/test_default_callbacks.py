"""Tests which callbacks are Lockstep's own."""

from lightning.pytorch import Callback
from lightning.pytorch.callbacks import ModelCheckpoint

from callbacks.checkpointing.final_validation import FinalValidation
from commands.cli.default_callbacks import is_default_callback


class OfAUser(FinalValidation):
    """A user may call the hooks that it inherits."""


def test_callbacks_of_users_and_of_lightning_are_not_own():
    assert is_default_callback(FinalValidation())
    assert not any(map(is_default_callback, (OfAUser(), ModelCheckpoint(), Callback())))

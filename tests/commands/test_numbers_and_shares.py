"""`--trainer.limit_test_batches 1` is one batch, and 1.0 is all of them, whatever was imported before."""

from inspect import signature
from types import UnionType
from typing import Union

from lightning.pytorch import Trainer

from commands.cli.trainer import LockstepTrainer


def test_whole_numbers_come_first_and_defaults_are_lightnings():
    ours, theirs = signature(LockstepTrainer).parameters, signature(Trainer).parameters
    found = [name for name in theirs if name.startswith(("limit_", "overfit_", "val_check"))]
    assert len(found) == 6
    for name in found:
        # typing keeps Unions that it was asked for, and gives one in another order for an equal one.
        assert isinstance(ours[name].annotation, UnionType)
        assert ours[name].annotation.__args__[:2] == (int, float)
        assert ours[name].default == theirs[name].default
        assert Union[ours[name].annotation] == theirs[name].annotation  # noqa: UP007  of one type there is no X | Y

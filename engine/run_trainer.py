"""Declares RunTrainer, the type of the trainer in hooks, with the attributes that callbacks and modules read.

Lightning's connectors set attributes such as `datamodule` on a Trainer, and its class does not declare them.
`as_run_trainer` returns the trainer of a hook as a RunTrainer; `engine.module.as_lockstep_module` does the same for the
module. The DataModule is a LockstepDataModule, because `train.py` accepts no other.
"""

from typing import TYPE_CHECKING, cast

from lightning.pytorch import Callback, Trainer
from typing_extensions import override

from engine.data.dataloader import TimedDataLoader
from engine.datamodule import LockstepDataModule


class RunTrainer(Trainer):
    """Lightning's Trainer with declarations of the attributes that its connectors set."""

    callbacks: list[Callback]
    datamodule: LockstepDataModule
    fast_dev_run: bool | int
    log_every_n_steps: int
    overfit_batches: int | float
    reload_dataloaders_every_n_epochs: int

    if TYPE_CHECKING:  # Lightning declares these properties with Any

        @property
        @override
        def train_dataloader(self) -> TimedDataLoader: ...

        @property
        @override
        def val_dataloaders(self) -> TimedDataLoader: ...

        @property
        @override
        def test_dataloaders(self) -> TimedDataLoader: ...

        @property
        @override
        def predict_dataloaders(self) -> TimedDataLoader: ...


def as_run_trainer(trainer: Trainer) -> RunTrainer:
    """Return the trainer of a hook with all attributes declared. Nothing is checked: tests pass substitutes."""
    return cast(RunTrainer, trainer)


def leave_training(callback: Callback, trainer: Trainer) -> None:
    """Remove a callback that has nothing to do in a training. Call it in its `on_train_start`.

    Lightning calls the hooks of every other callback in each step.
    """
    run = as_run_trainer(trainer)
    # A new list, because Lightning is iterating over the current list.
    run.callbacks = [other for other in run.callbacks if other is not callback]

"""Refuses settings of Lightning's Trainer that contradict the batch plan, the order of samples or the schedule."""

from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import (
    BatchSizeFinder,
    GradientAccumulationScheduler,
    LearningRateFinder,
    StochasticWeightAveraging,
)

from engine.run_trainer import as_run_trainer

_CALLBACKS = {
    BatchSizeFinder: "it changes the global batch; set trainer.auto_micro_batch to find what fits one device",
    GradientAccumulationScheduler: (
        "accumulation follows from the batch size; set data.init_args.micro_batch_size to what fits one device"
    ),
    LearningRateFinder: "it trains with a schedule of its own; search model.init_args.learning_rate by train.py sweep",
    StochasticWeightAveraging: "it replaces the learning rate of each step by a rate of each epoch",
}


def check_trainer_settings(trainer: Trainer) -> None:
    """Refuse settings that would change the training that the config describes.

    Raises:
        ValueError: names the setting, the reason and the setting to use instead.
    """
    if trainer.accumulate_grad_batches != 1:
        raise ValueError(
            f"trainer.accumulate_grad_batches is {trainer.accumulate_grad_batches}: accumulation follows from the "
            "batch size; set data.init_args.micro_batch_size to what fits one device instead"
        )
    if as_run_trainer(trainer).reload_dataloaders_every_n_epochs:
        raise ValueError(
            "trainer.reload_dataloaders_every_n_epochs would restart the order of the samples; remove the key: the "
            "order differs in every epoch without it"
        )
    for callback in as_run_trainer(trainer).callbacks:
        for refused, reason in _CALLBACKS.items():
            if isinstance(callback, refused):
                raise ValueError(f"trainer.callbacks has {refused.__name__}: {reason}. Remove the callback")

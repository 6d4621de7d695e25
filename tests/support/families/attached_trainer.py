"""Attaches a module and its data to a trainer, without a training."""

from typing import Any


def attach(module: Any, data: Any, stage: str = "fit") -> None:
    """Give a module and a data module a trainer, set up the data, and build the model."""
    from lightning.pytorch import Trainer
    from lightning.pytorch.trainer.states import TrainerFn

    trainer: Any = Trainer(accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False)
    trainer.state.fn = TrainerFn(stage)
    module.trainer = data.trainer = trainer
    trainer.datamodule, trainer.strategy._lightning_module = data, module
    data.setup(stage)
    module.configure_model()

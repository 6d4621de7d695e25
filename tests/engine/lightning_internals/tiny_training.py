"""Runs a training of a few batches, and states the installed versions in the messages of the contract tests."""

from importlib.metadata import version

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch.utils.data import DataLoader, TensorDataset

INSTALLED = ", ".join(f"{name} {version(name)}" for name in ("lightning", "torch", "jsonargparse", "tensorboard"))


class Model(LightningModule):
    def __init__(self):
        super().__init__()
        self.linear, self.configured = torch.nn.Linear(1, 1), 0

    def configure_model(self):
        self.configured += 1

    def training_step(self, batch, batch_idx):
        return self.linear(batch[0]).sum()

    def validation_step(self, batch, batch_idx):
        pass

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


class Recorder(Callback):
    """The answers of a function after each micro-batch."""

    def __init__(self, ask):
        self.ask, self.answers = ask, []

    def on_train_batch_end(self, trainer, *_):
        self.answers.append(self.ask(trainer))


def loader(batches):
    return DataLoader(TensorDataset(torch.ones(batches, 1)))


def trainer(callbacks=None, **settings):
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    return Trainer(
        accelerator="cpu", callbacks=callbacks, enable_model_summary=False, **{**quiet, "max_epochs": 1, **settings}
    )


def answers(ask, batches=5, **settings):
    recorder = Recorder(ask)
    trainer([recorder], **settings).fit(Model(), loader(batches), loader(1))
    return recorder.answers

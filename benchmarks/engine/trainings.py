"""Runs the compared trainings: same tower, optimizer and data in a bare torch loop, in Lightning and in the engine."""

import logging
import os
from collections.abc import Sequence
from itertools import count
from pathlib import Path

import numpy as np
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from benchmarks.engine.interleaving import Gate
from benchmarks.engine.mlp import SAMPLES, samples, squared_errors, tower
from benchmarks.recommender.movielens_like import movielens_like

CONFIGS = Path(__file__).resolve().parents[2] / "configs"

GUARDS = ("FiniteGuard", "UnusedParameterCheck", "ReplicaConsistencyCheck", "Preemption", "Watchdog", "Stragglers")
"""Callbacks of every run that a variant can disable."""


def bare(gate: Gate, *, batch_size: int) -> None:
    """Train in a plain loop without a loader: DDP for two processes, mean loss, clipping, AdamW, a schedule."""
    rank, processes = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    network: nn.Module = tower()
    if processes > 1:
        torch.distributed.init_process_group("gloo")
        network = DistributedDataParallel(network)
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3, betas=(0.9, 0.98), weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
    inputs, targets = samples()
    for epoch in count():
        order = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(epoch))
        for batch in order.split(batch_size):
            # Every process draws the same order and takes its share of the global batch.
            indices = batch[rank::processes]
            optimizer.zero_grad()
            squared_errors(network, inputs[indices], targets[indices]).mean().backward()
            torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            gate.step()


def with_accelerate(gate: Gate, *, batch_size: int) -> None:
    """Train in the same loop with Accelerate, which distributes the batches and wraps model, optimizer and schedule."""
    from accelerate import Accelerator
    from accelerate.utils import DataLoaderConfiguration

    # split_batches: `batch_size` is that of the global batch, as on the other variants.
    accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(split_batches=True))
    network: nn.Module = tower()
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3, betas=(0.9, 0.98), weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
    data = torch.utils.data.TensorDataset(*samples())
    loader = torch.utils.data.DataLoader(data, batch_size, shuffle=True, drop_last=True)
    network, optimizer, loader, schedule = accelerator.prepare(network, optimizer, loader, schedule)
    while True:
        for inputs, targets in loader:
            optimizer.zero_grad()
            accelerator.backward(squared_errors(network, inputs, targets).mean())
            accelerator.clip_grad_norm_(network.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            gate.step()


class _Turns(Callback):
    def __init__(self, gate: Gate) -> None:
        self.gate = gate

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *args: object) -> None:
        self.gate.step()


def lockstep(gate: Gate, *, options: Sequence[str], guards: Sequence[str] = GUARDS) -> None:
    """Run `train.py fit` with these options and only these guards."""
    from commands.cli.console_logging import filter_lightning_noise
    from commands.cli.main import LockstepCLI

    class Measured(LockstepCLI):
        def before_fit(self) -> None:
            # Removed by name: a run adds all guards itself.
            present = self.trainer.callbacks
            disabled = [guard for guard in GUARDS if guard not in guards]
            self.trainer.callbacks = [c for c in present if type(c).__name__ not in disabled] + [_Turns(gate)]

    filter_lightning_noise()
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)
    Measured(
        [
            "fit",
            "--run_name=benchmark",
            *options,
            "--trainer.accelerator=cpu",
            "--trainer.max_steps=100000000",
            "--trainer.max_epochs=-1",
            "--trainer.limit_val_batches=0",
            "--trainer.gradient_clip_val=1.0",
            "--trainer.enable_progress_bar=false",
            "--trainer.logger=false",
            "--last_checkpoint.every_n_steps=100000000",
            "--log.level=error",
            "--watchdog.timeout",
            "3600",  # a variant waits while others have their turns
        ]
    )


def engine(gate: Gate, *, batch_size: int, guards: Sequence[str] = GUARDS) -> None:
    """Train the tower in the engine."""
    options = [
        "--model=benchmarks.engine.mlp.Tower",
        "--data=benchmarks.engine.mlp.TowerData",
        f"--data.init_args.batch_size={batch_size}",
        "--best_checkpoint.monitor=none",
    ]
    lockstep(gate, options=options, guards=guards)


def recommender(gate: Gate, *, interactions: Path) -> None:
    """Train SASRec of configs/recommender/sasrec.yaml on a file of interactions."""
    options = [
        f"--config={CONFIGS / 'recommender/sasrec.yaml'}",
        "--data.init_args.dataset=files",
        f"--data.init_args.root={interactions}",
        "--model.init_args.baselines=false",
    ]
    lockstep(gate, options=options)


def write_interactions(folder: Path, num_users: int = 6040) -> Path:
    """Write a file of interactions with lengths as in ML-1M."""
    events = movielens_like(num_users)
    users = np.repeat(np.arange(num_users), np.diff(events.offsets))
    rows = np.stack([users, events.items, events.times], axis=1)
    path = folder / "interactions.csv"
    np.savetxt(path, rows, fmt="%d", delimiter=",", header="user_id,item_id,timestamp", comments="")
    return path


def plain_lightning(gate: Gate, *, batch_size: int) -> None:
    """Train a LightningModule that logs its loss, with a DataLoader of the same batches and Lightning's DDP."""
    processes = int(os.environ.get("WORLD_SIZE", 1))
    inputs, targets = samples()

    class Plain(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.network = tower()

        def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
            loss = squared_errors(self.network, *batch).mean()
            self.log("train/loss", loss)
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters(), lr=1e-3, betas=(0.9, 0.98), weight_decay=0.0)

    data = torch.utils.data.TensorDataset(inputs, targets)
    # Lightning's sampler gives each process its share, so the loader's batch is a process's.
    loader = torch.utils.data.DataLoader(data, batch_size // processes, shuffle=True)
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    Trainer(
        accelerator="cpu",
        devices=processes,
        strategy="ddp" if processes > 1 else "auto",
        max_epochs=-1,
        gradient_clip_val=1.0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[_Turns(gate)],
    ).fit(Plain(), loader)

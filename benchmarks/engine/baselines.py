"""Trains SASRec in a plain DDP loop, and in the same loop with Accelerate, with one or several processes.

The network is benchmarks/recommender/plain_sasrec.py, with the sizes of configs/recommender/sasrec.yaml. The
loops follow PyTorch's tutorial ("Getting Started with Distributed Data Parallel") and Accelerate's quick tour. The
samples of each global batch, optimizer, warm-up and clipping are those of Lockstep. Each process gets an equal number
of rows, padded on the left to 200 items, and computes the mean of its own rows.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.engine.interleaving import Gate
from benchmarks.recommender.plain_sasrec import PlainSASRec
from datamodules.recommender.datamodule import InteractionSequences
from engine.data.epoch_order import global_batches
from lightning_modules.recommender.networks.architecture import ArchitectureSettings
from lightning_modules.recommender.networks.sequence_encoder import SequenceEncoder

_SEED, _WARM_UP, _LENGTH = 1, 100, 200

Losses = Iterator[float]
"""Yields the loss of this process's share of each global batch, after its step; endless."""


class _Loss(nn.Module):
    """Module that DDP wraps; its forward pass returns the loss."""

    def __init__(self, model: PlainSASRec) -> None:
        super().__init__()
        self.model = model

    def forward(self, items: Tensor, targets: Tensor) -> Tensor:
        return self.model.loss(items, targets)


class _Batches:
    """Yields the global batches of one epoch after another, without incomplete batches."""

    def __init__(self, num_rows: int, batch_size: int) -> None:
        self.num_rows, self.batch_size, self.epoch = num_rows, batch_size, -1

    def __len__(self) -> int:
        return self.num_rows // self.batch_size

    def __iter__(self) -> Iterator[list[int]]:
        self.epoch += 1
        batches = global_batches(self.num_rows, self.batch_size, _SEED, self.epoch)
        return iter([batch.tolist() for batch in batches[: len(self)]])


def by_hand(interactions: Path, batch_size: int = 128, dropout: float = 0.15) -> Losses:
    """Train in a plain loop: each process indexes its rows of the batch, with DDP for several processes."""
    rank, processes = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    rows, network = _rows_and_network(interactions, dropout)
    if processes > 1:
        torch.distributed.init_process_group("gloo")
        network = DistributedDataParallel(network)
    # The optimizer is built after DDP has wrapped the network, because DDP broadcasts the weights of rank 0.
    optimizer, schedule = _optimizer(network)
    batches = _Batches(len(rows), batch_size)
    while True:
        for batch in batches:
            items, targets = rows[batch[rank::processes]]
            optimizer.zero_grad()
            loss = network(items, targets)
            loss.backward()
            nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            yield loss.item()


def with_accelerate(interactions: Path, batch_size: int = 128, dropout: float = 0.15) -> Losses:
    """Train with Accelerate, which distributes the batches, wraps the model and steps the optimizer."""
    from accelerate import Accelerator
    from accelerate.utils import DataLoaderConfiguration

    rows, network = _rows_and_network(interactions, dropout)
    accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(split_batches=True))
    optimizer, schedule = _optimizer(network)
    loader = DataLoader(rows, batch_sampler=_Batches(len(rows), batch_size))
    network, optimizer, loader = accelerator.prepare(network, optimizer, loader)
    while True:
        for items, targets in loader:
            optimizer.zero_grad()
            loss = network(items, targets)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(network.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            yield loss.item()


def ddp_loop(gate: Gate, *, interactions: Path) -> None:
    """Run `by_hand` under a gate."""
    for _ in by_hand(interactions):
        gate.step()


def accelerate_loop(gate: Gate, *, interactions: Path) -> None:
    """Run `with_accelerate` under a gate."""
    for _ in with_accelerate(interactions):
        gate.step()


def _rows_and_network(interactions: Path, dropout: float) -> tuple[TensorDataset, nn.Module]:
    events = InteractionSequences("files", str(interactions), max_length=_LENGTH).events
    inputs, targets = (np.zeros((events.num_users, _LENGTH), dtype=np.int64) for _ in range(2))
    for user, (start, end) in enumerate(zip(events.offsets[:-1], events.offsets[1:] - 2, strict=True)):
        # At most 201 events: inputs are all but the last, targets all but the first.
        own = np.asarray(events.items[max(start, end - 1 - _LENGTH) : end])  # without the two for evaluation
        inputs[user, _LENGTH + 1 - len(own) :], targets[user, _LENGTH + 1 - len(own) :] = own[:-1], own[1:]
    torch.manual_seed(_SEED)
    encoder = SequenceEncoder(
        events.num_items,
        _LENGTH,
        ArchitectureSettings(hidden_size=64, num_heads=2, feed_forward_size=256, dropout=dropout),
    )
    return TensorDataset(torch.as_tensor(inputs), torch.as_tensor(targets)), _Loss(PlainSASRec(encoder))


def _optimizer(network: nn.Module) -> tuple[torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler]:
    optimizer = torch.optim.AdamW(network.parameters(), lr=2e-3, betas=(0.9, 0.98), weight_decay=0.0)
    return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / _WARM_UP))

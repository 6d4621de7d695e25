"""Measures training steps on histories of equal length and a given number of items."""

from collections.abc import Callable
from itertools import cycle, islice

import numpy as np
import torch

from benchmarks.recommender.measure import Done, Work
from benchmarks.recommender.training_steps import (
    HIDDEN_SIZE,
    TIME_SPAN,
    ModuleAlone,
    optimizer_step,
    row_optimizer_step,
    train_sequences,
)
from datamodules.recommender.batch import TrainBatch
from datamodules.recommender.events import EventArrays
from datamodules.recommender.negatives.negative_mixture import NegativeOptions
from engine.data.samplers import MicroBatchRequest
from lightning_modules.recommender.losses.next_item import LossName
from lightning_modules.recommender.networks.architecture import ArchitectureSettings
from lightning_modules.recommender.networks.attention.kinds import Attention
from lightning_modules.recommender.networks.sequence_encoder import SequenceEncoder
from lightning_modules.recommender.sparse_item_rows import ItemOptimizer

_NEGATIVES = 128


def length_step(attention: Attention, length: int, batch_size: int = 16, num_items: int = 3416) -> Work:
    """Return a step with the scores of all items; the amount is the number of events."""
    module = _module(attention, "cross_entropy", length, num_items)
    return _work(optimizer_step(module, module.batch_loss), _batches(1, length, batch_size, num_items, negatives=0))


def item_step(loss: LossName, num_items: int, length: int = 50, batch_size: int = 32) -> Work:
    """Return a step of SASRec; the amount is the number of events."""
    module = _module("standard", loss, length, num_items)
    negatives = 0 if loss == "cross_entropy" else _NEGATIVES
    return _work(optimizer_step(module, module.batch_loss), _batches(1, length, batch_size, num_items, negatives))


def row_step(
    item_optimizer: ItemOptimizer,
    num_items: int,
    length: int = 50,
    batch_size: int = 32,
    batches: int = 32,
    steps: int = 4,
) -> Work:
    """Return steps of SASRec on different batches; the amount is the number of events.

    The batches differ, so that their rows are not in the cache from the step before.
    """
    module = _module("standard", "sampled_softmax", length, num_items, item_optimizer)
    step = optimizer_step if item_optimizer == "dense" else row_optimizer_step
    prepared = _batches(batches, length, batch_size, num_items, _NEGATIVES)
    return _work(step(module, module.batch_loss), prepared, steps)


def _module(
    attention: Attention, loss: LossName, length: int, num_items: int, item_optimizer: ItemOptimizer = "dense"
) -> ModuleAlone:
    torch.manual_seed(1)
    encoder = SequenceEncoder(
        num_items,
        length,
        ArchitectureSettings(hidden_size=HIDDEN_SIZE, dropout=0.2, attention=attention, time_span=TIME_SPAN),
    )
    return ModuleAlone(encoder, loss, item_optimizer)


def _batches(number: int, length: int, batch_size: int, num_items: int, negatives: int) -> list[tuple[TrainBatch]]:
    # Three events more than the length: two are held out, and the inputs are one shorter than the items.
    events, sampled = (
        uniform_events(number * batch_size, length + 3, num_items),
        NegativeOptions(negatives, shared=True),
    )
    rows = train_sequences(events, length, negatives=sampled)
    indices = np.arange(number * batch_size).reshape(number, batch_size)
    return [(rows[MicroBatchRequest(0, row)],) for row in indices]


def _work(step: Callable[[tuple[TrainBatch]], float], batches: list[tuple[TrainBatch]], steps: int = 1) -> Work:
    # Outside of `work`, so that the next turn continues with the next batches.
    draws = cycle(batches)

    def work() -> Done:
        events = 0
        for batch in islice(draws, steps):
            step(batch)
            events += batch[0].targets.numel()
        return Done(events)

    return work


def uniform_events(users: int, events: int, num_items: int) -> EventArrays:
    """Return users with an equal number of events, minutes apart."""
    random = np.random.default_rng(1)
    items = random.integers(1, num_items + 1, users * events, dtype=np.int32)
    times = 956_703_932 + np.cumsum(random.integers(1, 600, users * events))
    return EventArrays(np.arange(users + 1) * events, items, times, num_items)

"""Training steps of histories of one length and of so many items."""

import numpy as np
import torch

from benchmarks.recommender.measure import Done, Work
from benchmarks.recommender.training_steps import HIDDEN_SIZE, TIME_SPAN, ModuleAlone, optimizer_step, train_sequences
from datamodules.recommender.sequences import EventArrays
from engine.sampling import Draw
from lightning_modules.recommender.losses import LossName
from lightning_modules.recommender.network import Attention, SequenceEncoder

_NEGATIVES = 128


def length_step(attention: Attention, length: int, batch_size: int = 16, num_items: int = 3416) -> Work:
    """A step with all items' scores; the amount is the number of events."""
    return _step(attention, "cross_entropy", length, batch_size, num_items)


def item_step(loss: LossName, num_items: int, length: int = 50, batch_size: int = 32) -> Work:
    """A step of SASRec; the amount is the number of events."""
    return _step("standard", loss, length, batch_size, num_items)


def _step(attention: Attention, loss: LossName, length: int, batch_size: int, num_items: int) -> Work:
    negatives = {} if loss == "cross_entropy" else {"num_negatives": _NEGATIVES, "shared_negatives": True}
    rows = train_sequences(uniform_events(batch_size, length + 3, num_items), length, **negatives)
    batch = (rows[Draw(0, np.arange(batch_size))],)
    torch.manual_seed(1)
    encoder = SequenceEncoder(
        num_items, length, HIDDEN_SIZE, dropout=0.2, attention=attention, time_span=TIME_SPAN
    )
    module = ModuleAlone(encoder, loss)
    step = optimizer_step(module, module.mean_loss)

    def work() -> Done:
        step(batch)
        return Done(batch_size * length)

    return work


def uniform_events(users: int, events: int, num_items: int) -> EventArrays:
    """Users with so many events each, minutes apart."""
    random = np.random.default_rng(1)
    items = random.integers(1, num_items + 1, users * events, dtype=np.int32)
    times = 956_703_932 + np.cumsum(random.integers(1, 600, users * events))
    return EventArrays(np.arange(users + 1) * events, items, times, num_items)

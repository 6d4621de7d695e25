"""The training steps that are compared: time-interval attention, TiSASRec, SASRec; and how long they wait for data.

Every maker returns work for ``measure``: all that is made before the work function is not measured.
"""

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.recommender.measure import Done, Work
from benchmarks.recommender.movielens_like import movielens_like
from benchmarks.recommender.naive_time_attention import NaiveTimeAttention, NaiveTimeTables, with_naive_attention
from benchmarks.recommender.plain_sasrec import PlainSASRec
from datamodules.recommender.batch import TrainBatch
from datamodules.recommender.length_groups import LengthGroups
from datamodules.recommender.sequences import EventArrays, TrainSequences, personal_time_scale
from engine.loading import MeasuredLoader, Pending
from engine.sampling import Draw, TrainSampler
from lightning_modules.recommender.attention import TimeIntervalAttention, TimeTables
from lightning_modules.recommender.losses import LossName
from lightning_modules.recommender.module import SequentialRecommender
from lightning_modules.recommender.network import Attention, SequenceEncoder

HIDDEN_SIZE, TIME_SPAN, LENGTH_GROUPS = 64, 256, 8

Form = Literal["naive", "ours"]
Batch = TypeVar("Batch")


def attention_alone(form: Form, length: int, batch_size: int = 32, dropout: float = 0.2, passes: int = 1) -> Work:
    """Forward and backward through the looked-up tables and one layer of time-interval attention."""
    torch.manual_seed(1)
    history = full_batch(length, batch_size).history
    tables: nn.Module = TimeTables(length, TIME_SPAN, HIDDEN_SIZE, 1, dropout)
    attention: nn.Module = TimeIntervalAttention(HIDDEN_SIZE, 1, dropout)
    if form == "naive":
        tables, attention = NaiveTimeTables(tables), NaiveTimeAttention(attention)
    places = torch.arange(length).expand(batch_size, length)
    x = torch.randn(batch_size, length, HIDDEN_SIZE, requires_grad=True)
    gradient = torch.randn_like(x)

    def work() -> Done:
        for _ in range(passes):
            context = tables(places, history.times, history.time_scale)
            attention(x, context).backward(gradient)
            x.grad = None
            for module in (tables, attention):
                module.zero_grad(set_to_none=True)
        return Done(passes)

    return work


def tisasrec_step(form: Form, length: int, batch_size: int = 32, dropout: float = 0.2, steps: int = 1) -> Work:
    """Whole training steps of TiSASRec on rows of ``length`` events; the forms differ in their attention alone.

    With rows all of one length there is no padding to save, and the batch is computed in one part.
    """
    batch = (full_batch(length, batch_size),)
    encoder = _encoder("time_interval", length, dropout)
    if form == "naive":
        encoder = with_naive_attention(encoder)
    module = ModuleAlone(encoder)
    step = optimizer_step(module, module.mean_loss)

    def work() -> Done:
        for _ in range(steps):
            step(batch)
        return Done(steps)

    return work


def sasrec_step(
    form: Literal["plain", "ours"],
    num_users: int = 1024,
    batch_size: int = 128,
    length: int = 200,
    batches: int = 8,
    bf16: bool = False,
) -> Work:
    """Training steps of SASRec on sequences as long as those of ML-1M; the amount is the number of sequences.

    Both draw the same batches; ours computes each in parts of similar length. The plain one's steps all cost the same,
    so a few will do.

    Args:
        bf16: forward and loss under autocast, as `trainer.precision: bf16-mixed` does it.
    """
    sequences = train_sequences(movielens_like(num_users), length)
    draws = list(islice(TrainSampler(len(sequences), batch_size, seed=1), batches))
    encoder = _encoder("standard", length, dropout=0.2)
    if form == "ours":
        module, rows = ModuleAlone(encoder), LengthGroups(sequences, LENGTH_GROUPS)
        loaded = [rows[draw] for draw in draws]
        step = optimizer_step(module, torch.autocast("cpu", torch.bfloat16, enabled=bf16)(module.mean_loss))
    else:
        model = PlainSASRec(encoder)
        loaded = [left_padded(sequences[draw], length) for draw in draws]
        step = optimizer_step(model, lambda rows: model.loss(*rows))

    def work() -> Done:
        for batch in loaded:
            step(batch)
        return Done(sum(len(draw.indices) for draw in draws))

    return work


def step_with_loader(
    attention: Attention, num_users: int = 512, batch_size: int = 128, length: int = 200, dropout: float = 0.2
) -> Work:
    """An epoch of training with the project's own loader in the same process, waiting measured."""
    sequences = train_sequences(movielens_like(num_users), length)
    order = TrainSampler(len(sequences), batch_size, seed=1)
    loader = MeasuredLoader(LengthGroups(sequences, LENGTH_GROUPS), sampler=Pending(order), batch_size=None)
    module = ModuleAlone(_encoder(attention, length, dropout))
    step = optimizer_step(module, module.mean_loss)

    def work() -> Done:
        before, steps = loader.waited, 0
        for batch in loader:
            step(batch)
            steps += 1
        return Done(steps, loader.waited - before)

    return work


class ModuleAlone(SequentialRecommender):
    """The project's module around a given encoder, without a trainer: its own `training_loss` is what is measured."""

    def __init__(self, encoder: SequenceEncoder, loss: LossName = "cross_entropy") -> None:
        super().__init__(loss=loss)
        self.encoder = encoder

    def mean_loss(self, parts: Sequence[TrainBatch]) -> Tensor:
        """Over all items, or over the negatives of the batch."""
        total, count = self.training_loss(parts)
        return total / count

    def log(self, *arguments: Any, **options: Any) -> None:  # noqa: ANN401
        """Nothing: without a trainer there is no log."""


def optimizer_step(model: nn.Module, loss: Callable[[Batch], Tensor]) -> Callable[[Batch], float]:
    """A function that trains on a batch (forward, backward, AdamW) and returns its loss."""
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.98))

    def step(batch: Batch) -> float:
        value = loss(batch)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        return value.item()

    return step


def train_sequences(events: EventArrays, length: int, **options: bool | int) -> TrainSequences:
    """The training rows of leave-one-out: all but the last two events of each user."""
    users, ends = np.arange(len(events.offsets) - 1), events.offsets[1:] - 2
    scale = personal_time_scale(events, ends)
    return TrainSequences(events, (users, ends), max_length=length, time_scale=scale, seed=1, **options)


def full_batch(length: int, batch_size: int) -> TrainBatch:
    """Rows without padding: what the longest batches of an epoch look like."""
    sequences = train_sequences(movielens_like(), length)
    return sequences[Draw(0, np.flatnonzero(sequences.lengths == length)[:batch_size])]


def left_padded(batch: TrainBatch, length: int) -> tuple[Tensor, Tensor]:
    """Items and targets [B, length], padded on the left."""
    columns = torch.arange(length) - (length - batch.history.lengths.unsqueeze(1))
    real, columns = columns >= 0, columns.clamp_min(0)
    return batch.history.items.gather(1, columns) * real, batch.targets.gather(1, columns) * real


def _encoder(attention: Attention, length: int, dropout: float, num_items: int = 3416) -> SequenceEncoder:
    torch.manual_seed(1)
    return SequenceEncoder(num_items, length, HIDDEN_SIZE, dropout=dropout, attention=attention, time_span=TIME_SPAN)

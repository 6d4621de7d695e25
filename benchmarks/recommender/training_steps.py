"""Defines the training steps to compare, time-interval attention, TiSASRec, SASRec, and their data wait.

Every maker returns work for `measure`; what it creates before is not measured.
"""

from collections.abc import Callable, Sequence
from functools import partial
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
from datamodules.recommender.dataset import TrainDataset
from datamodules.recommender.events import EventArrays
from datamodules.recommender.length_groups import LengthGroups
from datamodules.recommender.negatives.negative_mixture import UNIFORM, NegativeOptions
from datamodules.recommender.user_histories import personal_time_scale
from engine.data.dataloader import PendingSampler, TimedDataLoader
from engine.data.samplers import MicroBatchRequest, TrainSampler
from engine.optim.optimizers import build_optimizer
from lightning_modules.recommender.features.training_vectors import TrainingVectors
from lightning_modules.recommender.losses.next_item import LossName
from lightning_modules.recommender.module import SequentialRecommender
from lightning_modules.recommender.networks.architecture import ArchitectureSettings
from lightning_modules.recommender.networks.attention.kinds import Attention
from lightning_modules.recommender.networks.attention.time_interval import TimeIntervalAttention, TimeTables
from lightning_modules.recommender.networks.sequence_encoder import SequenceEncoder
from lightning_modules.recommender.sparse_item_rows import ItemOptimizer, sparse_item_tables
from lightning_modules.recommender.training_loss import TrainingLoss

HIDDEN_SIZE, TIME_SPAN, LENGTH_GROUPS = 64, 256, 8

Form = Literal["naive", "ours"]
Batch = TypeVar("Batch")


def attention_alone(form: Form, length: int, batch_size: int = 32, dropout: float = 0.2, passes: int = 1) -> Work:
    """Measure forward and backward through the looked-up tables and a layer of time-interval attention."""
    torch.manual_seed(1)
    history = full_batch(length, batch_size).history
    # Both forms are made from the same weights, and only the chosen form is run.
    own_tables = TimeTables(length, TIME_SPAN, HIDDEN_SIZE, 1, dropout)
    own_attention = TimeIntervalAttention(HIDDEN_SIZE, 1, dropout)
    tables: nn.Module = NaiveTimeTables(own_tables) if form == "naive" else own_tables
    attention: nn.Module = NaiveTimeAttention(own_attention) if form == "naive" else own_attention
    positions = torch.arange(length).expand(batch_size, length)
    # Requires a gradient, as the input of an inner layer does.
    x = torch.randn(batch_size, length, HIDDEN_SIZE, requires_grad=True)
    gradient = torch.randn_like(x)

    def work() -> Done:
        for _ in range(passes):
            context = tables(positions, history.times, history.time_scale)
            attention(x, context).backward(gradient)
            x.grad = None
            for module in (tables, attention):
                module.zero_grad(set_to_none=True)
        return Done(passes)

    return work


def tisasrec_step(form: Form, length: int, batch_size: int = 32, dropout: float = 0.2, steps: int = 1) -> Work:
    """Measure complete training steps of TiSASRec on rows of `length` events; the forms differ in attention only.

    All rows have the same length, so there is no padding to avoid, and the batch is computed in a single part.
    """
    batch = (full_batch(length, batch_size),)
    encoder = _encoder("time_interval", length, dropout)
    if form == "naive":
        encoder = with_naive_attention(encoder)
    module = ModuleAlone(encoder)
    step = optimizer_step(module, module.batch_loss)

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
    """Measure training steps of SASRec on sequences as long as those of ML-1M; the amount is the number of sequences.

    Both variants have the same batches; ours computes each in parts of similar length. All steps of the plain variant
    cost the same, so a few suffice.

    Args:
        form: variant to measure.
        num_users: sequences from which the batches are sampled.
        batch_size: sequences per step.
        length: length of the longest sequence.
        batches: steps per turn.
        bf16: forward and loss under autocast, as with `trainer.precision: bf16-mixed`.
    """
    sequences = train_sequences(movielens_like(num_users), length)
    # Both variants get the same draws, made before the measurement.
    draws = list(islice(TrainSampler(len(sequences), batch_size, seed=1), batches))
    encoder = _encoder("standard", length, dropout=0.2)
    if form == "ours":
        module, rows = ModuleAlone(encoder), LengthGroups(sequences, LENGTH_GROUPS)
        # autocast as a decorator covers forward and loss; the backward pass follows their dtypes.
        train = optimizer_step(module, torch.autocast("cpu", torch.bfloat16, enabled=bf16)(module.batch_loss))
        steps = [partial(train, rows[draw]) for draw in draws]
    else:
        model = PlainSASRec(encoder)
        train_padded = optimizer_step(model, partial(_plain_loss, model))
        steps = [partial(train_padded, left_padded(sequences[draw], length)) for draw in draws]

    def work() -> Done:
        for step in steps:
            step()
        return Done(sum(len(draw.indices) for draw in draws))

    return work


def _plain_loss(model: PlainSASRec, rows: tuple[Tensor, Tensor]) -> Tensor:
    return model.loss(*rows)


def step_with_loader(
    attention: Attention, num_users: int = 512, batch_size: int = 128, length: int = 200, dropout: float = 0.2
) -> Work:
    """Measure an epoch of training with the project's own loader in the same process, and the time that it waits."""
    sequences = train_sequences(movielens_like(num_users), length)
    order = TrainSampler(len(sequences), batch_size, seed=1)
    loader = TimedDataLoader(LengthGroups(sequences, LENGTH_GROUPS), sampler=PendingSampler(order), batch_size=None)
    module = ModuleAlone(_encoder(attention, length, dropout))
    step = optimizer_step(module, module.batch_loss)

    def work() -> Done:
        before, steps = loader.waited, 0
        for batch in loader:
            step(batch)
            steps += 1
        return Done(steps, loader.waited - before)

    return work


class ModuleAlone(SequentialRecommender):
    """The project's module around a given encoder, without a trainer; its own `training_loss` is measured."""

    def __init__(
        self, encoder: SequenceEncoder, loss: LossName = "cross_entropy", item_optimizer: ItemOptimizer = "dense"
    ) -> None:
        super().__init__(loss=loss, item_optimizer=item_optimizer)
        self.encoder = encoder
        self.row_tables = sparse_item_tables(encoder, item_optimizer, learning_rate=None)
        all_items = loss == "cross_entropy"
        vectors = TrainingVectors(encoder, None, self.row_tables, all_items, item_dropout=0.0)
        self.micro_batch_loss = TrainingLoss(encoder, vectors, self.loss, self.architecture.dropout > 0)

    def batch_loss(self, parts: Sequence[TrainBatch]) -> Tensor:
        """Return the mean over all items, or over the negatives of the batch."""
        total, count = self.training_loss(parts)
        return total / count

    def log(self, *arguments: Any, **options: Any) -> None:
        """Do nothing: without a trainer there is no log."""


def optimizer_step(model: nn.Module, loss: Callable[[Batch], Tensor]) -> Callable[[Batch], float]:
    """Return a function that trains on a batch (forward, backward, AdamW) and returns its loss."""
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.98))

    def step(batch: Batch) -> float:
        value = loss(batch)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        return value.item()

    return step


def row_optimizer_step(module: ModuleAlone, loss: Callable[[Batch], Tensor]) -> Callable[[Batch], float]:
    """Return a function as `optimizer_step`; the module's item vectors are trained by rows."""
    module.train()
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    groups = [{"params": trained}, *(table.optimizer_group(weight_decay=0.01) for table in module.row_tables)]
    optimizer = build_optimizer("adamw", groups, 1e-3, (0.9, 0.98), tables=module.row_tables)

    def step(batch: Batch) -> float:
        value = loss(batch)
        optimizer.zero_grad()
        value.backward()
        # Between backward pass and step, as the engine's module does.
        for table in module.row_tables:
            table.collect_gradients()
        optimizer.step()
        return value.item()

    return step


def train_sequences(events: EventArrays, length: int, negatives: NegativeOptions = UNIFORM) -> TrainDataset:
    """Return the training rows of leave-one-out: all but the last two events of each user."""
    users, ends = np.arange(len(events.offsets) - 1), events.offsets[1:] - 2
    scale = personal_time_scale(events, ends)
    return TrainDataset(events, (users, ends), max_length=length, time_scale=scale, seed=1, negatives=negatives)


def full_batch(length: int, batch_size: int) -> TrainBatch:
    """Return rows without padding, like the longest batches of an epoch."""
    sequences = train_sequences(movielens_like(), length)
    return sequences[MicroBatchRequest(0, np.flatnonzero(sequences.lengths == length)[:batch_size])]


def left_padded(batch: TrainBatch, length: int) -> tuple[Tensor, Tensor]:
    """Return items and targets [B, length], padded on the left."""
    # [B, length]: column j holds event j minus the padding on its left.
    columns = torch.arange(length) - (length - batch.history.lengths.unsqueeze(1))
    real, columns = columns >= 0, columns.clamp_min(0)
    return batch.history.items.gather(1, columns) * real, batch.targets.gather(1, columns) * real


def _encoder(attention: Attention, length: int, dropout: float, num_items: int = 3416) -> SequenceEncoder:
    torch.manual_seed(1)
    return SequenceEncoder(
        num_items,
        length,
        ArchitectureSettings(hidden_size=HIDDEN_SIZE, dropout=dropout, attention=attention, time_span=TIME_SPAN),
    )

"""Measures trainings of SASRec with loader: rows built one by one in Python and a plain step, beside Lockstep.

The peer does what the public codes do (kang205/SASRec, pmixer/SASRec.pytorch and their descendants): see
`per_row_sampler` and `plain_sasrec`. Both variants build their batches in the process that trains on them, so the
CPU time includes the complete cost of a sequence.
"""

from collections.abc import Callable
from itertools import islice
from typing import Literal

import torch
from torch import Tensor

from benchmarks.recommender.loading import training_users
from benchmarks.recommender.measure import Done, Work
from benchmarks.recommender.movielens_like import movielens_like
from benchmarks.recommender.per_row_sampler import PerRowSampler
from benchmarks.recommender.plain_sasrec import PlainSASRec
from benchmarks.recommender.training_steps import LENGTH_GROUPS, ModuleAlone, optimizer_step, train_sequences
from datamodules.recommender.dataset import TrainDataset
from datamodules.recommender.length_groups import LengthGroups
from datamodules.recommender.negatives.negative_mixture import NegativeOptions
from engine.data.samplers import MicroBatchRequest, TrainSampler
from lightning_modules.recommender.networks.architecture import ArchitectureSettings
from lightning_modules.recommender.networks.sequence_encoder import SequenceEncoder

Form = Literal["plain", "ours"]
Loss = Literal["cross_entropy", "bce"]
Step = Callable[[MicroBatchRequest], int]
"""Builds a batch, trains on it and returns the number of its sequences."""


def whole_training(
    form: Form,
    loss: Loss,
    num_users: int = 1024,
    batch_size: int = 128,
    length: int = 200,
    batches: int = 8,
    hidden_size: int = 64,
) -> Work:
    """Measure the first batches of an epoch, from the order of the rows to the optimizer step; counts sequences.

    Args:
        form: variant to measure.
        loss: over all items, or with one negative per position, which both variants then sample.
        num_users: sequences of an epoch.
        batch_size: sequences per step.
        length: length of the longest sequence.
        batches: all steps of the plain variant cost the same, so a few suffice.
        hidden_size: width of the states.
    """
    sequences = train_sequences(movielens_like(num_users), length, negatives=NegativeOptions(int(loss == "bce")))
    torch.manual_seed(1)
    encoder = SequenceEncoder(
        sequences.events.num_items, length, ArchitectureSettings(hidden_size=hidden_size, dropout=0.2)
    )
    order = TrainSampler(num_users, batch_size, seed=1)
    step = (_ours if form == "ours" else _plain)(sequences, encoder, loss)

    def work() -> Done:
        # `islice` starts at the first batch in every turn, so all turns train on the same rows.
        return Done(sum(step(draw) for draw in islice(order, batches)))

    return work


def _ours(sequences: TrainDataset, encoder: SequenceEncoder, loss: Loss) -> Step:
    rows, module = LengthGroups(sequences, LENGTH_GROUPS), ModuleAlone(encoder, loss)
    train = optimizer_step(module, module.batch_loss)

    def step(request: MicroBatchRequest) -> int:
        train(rows[request])
        return len(request.indices)

    return step


def _plain(sequences: TrainDataset, encoder: SequenceEncoder, loss: Loss) -> Step:
    users = training_users(sequences.events, sequences)
    sampler = PerRowSampler(users, sequences.events.num_items, sequences.max_length, None, negatives=loss == "bce")
    model = PlainSASRec(encoder)
    value: Callable[..., Tensor] = model.loss if loss == "cross_entropy" else model.binary_loss

    def loss_of(tensors: tuple[Tensor, ...]) -> Tensor:
        return value(*tensors)

    train = optimizer_step(model, loss_of)

    def step(request: MicroBatchRequest) -> int:
        rows = sampler.batch(request.indices.tolist())
        arrays = (rows.items, rows.targets) + ((rows.negatives,) if loss == "bce" else ())
        # from_numpy shares memory, so the conversion costs nothing.
        train(tuple(torch.from_numpy(array) for array in arrays))
        return len(request.indices)

    return step

"""Training of SASRec with its loader: rows made one by one in Python and a plain step, against the project's own.

The peer is what the public codes are (kang205/SASRec, pmixer/SASRec.pytorch and their descendants): see
``per_row_sampler`` and ``plain_sasrec``. Both sides make their batches in the process that trains on them, so all that
a sequence costs is in the CPU time.
"""

from collections.abc import Callable
from itertools import islice
from typing import Literal

import torch

from benchmarks.recommender.loading import training_users
from benchmarks.recommender.measure import Done, Work
from benchmarks.recommender.movielens_like import movielens_like
from benchmarks.recommender.per_row_sampler import PerRowSampler
from benchmarks.recommender.plain_sasrec import PlainSASRec
from benchmarks.recommender.training_steps import LENGTH_GROUPS, ModuleAlone, optimizer_step, train_sequences
from datamodules.recommender.length_groups import LengthGroups
from datamodules.recommender.sequences import TrainSequences
from engine.sampling import Draw, TrainSampler
from lightning_modules.recommender.network import SequenceEncoder

Form = Literal["plain", "ours"]
Loss = Literal["cross_entropy", "bce"]
Step = Callable[[Draw], int]
"""Makes a batch, trains on it and returns how many sequences it has."""


def whole_training(
    form: Form, loss: Loss, num_users: int = 1024, batch_size: int = 128, length: int = 200, batches: int = 8
) -> Work:
    """The first batches of an epoch, from the order of the rows to the optimizer step; counts sequences.

    Args:
        loss: over all items, or of one negative for each position, which both sides then draw.
        batches: the plain one's cost all the same, so a few will do.
    """
    sequences = train_sequences(movielens_like(num_users), length, num_negatives=int(loss == "bce"))
    torch.manual_seed(1)
    encoder = SequenceEncoder(sequences.events.num_items, length, dropout=0.2)
    order = TrainSampler(num_users, batch_size, seed=1)
    step = (_ours if form == "ours" else _plain)(sequences, encoder, loss)

    def work() -> Done:
        return Done(sum(step(draw) for draw in islice(order, batches)))

    return work


def _ours(sequences: TrainSequences, encoder: SequenceEncoder, loss: Loss) -> Step:
    rows, module = LengthGroups(sequences, LENGTH_GROUPS), ModuleAlone(encoder, loss)
    train = optimizer_step(module, module.mean_loss)

    def step(draw: Draw) -> int:
        train(rows[draw])
        return len(draw.indices)

    return step


def _plain(sequences: TrainSequences, encoder: SequenceEncoder, loss: Loss) -> Step:
    users = training_users(sequences.events, sequences)
    sampler = PerRowSampler(users, sequences.events.num_items, sequences.max_length, None, negatives=loss == "bce")
    model = PlainSASRec(encoder)
    value = model.loss if loss == "cross_entropy" else model.binary_loss
    train = optimizer_step(model, lambda tensors: value(*tensors))

    def step(draw: Draw) -> int:
        rows = sampler.batch(draw.indices.tolist())
        arrays = (rows.items, rows.targets) + ((rows.negatives,) if loss == "bce" else ())
        train(tuple(torch.from_numpy(array) for array in arrays))
        return len(draw.indices)

    return step

"""Measures the construction of batches: the project's vectorized rows beside the per-row sampler."""

import numpy as np

from benchmarks.recommender.measure import Done, Work
from benchmarks.recommender.movielens_like import movielens_like
from benchmarks.recommender.per_row_sampler import PerRowSampler, User
from benchmarks.recommender.training_steps import LENGTH_GROUPS, TIME_SPAN, train_sequences
from datamodules.recommender.dataset import TrainDataset
from datamodules.recommender.events import Events
from datamodules.recommender.length_groups import LengthGroups
from datamodules.recommender.negatives.negative_mixture import NegativeOptions
from engine.data.samplers import TrainSampler
from lightning_modules.recommender.networks.attention.time_interval import time_intervals


def per_row(
    with_times: bool, num_users: int = 1024, batch_size: int = 128, length: int = 200, batches: int = 1
) -> Work:
    """Build batches of inputs, targets, negatives and (`with_times`) intervals of all pairs, event by event."""
    events = movielens_like(num_users)
    users = training_users(events, train_sequences(events, length))
    sampler = PerRowSampler(users, events.num_items, length, TIME_SPAN if with_times else None)
    order = [draw.indices.tolist() for draw in TrainSampler(num_users, batch_size, seed=1)]

    def work() -> Done:
        for rows in order[:batches]:
            sampler.batch(rows)
        return Done(batches)

    return work


def vectorized(with_times: bool, num_users: int = 1024, batch_size: int = 128, length: int = 200) -> Work:
    """Build the same batches with the project's data set, in parts of similar length, an epoch at a time.

    Intervals are computed as the model computes them.
    """
    rows = LengthGroups(train_sequences(movielens_like(num_users), length, negatives=NegativeOptions(1)), LENGTH_GROUPS)
    order = TrainSampler(len(rows), batch_size, seed=1)

    def work() -> Done:
        for draw in order:
            for part in rows[draw]:
                if with_times:
                    time_intervals(part.history.times, part.history.time_scale, TIME_SPAN)
        return Done(len(order))

    return work


def training_users(events: Events, sequences: TrainDataset) -> list[User]:
    """Return the training rows as Python lists."""
    parts = [slice(events.offsets[user], end) for user, end in zip(sequences.users, sequences.ends, strict=True)]
    scales = np.asarray(sequences.time_scale)[sequences.users].tolist()
    return [
        User(events.items[part].tolist(), events.times[part].tolist(), scale)
        for part, scale in zip(parts, scales, strict=True)
    ]

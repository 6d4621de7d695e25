"""The per-row sampler makes the same rows as the project's data set."""

import numpy as np
import torch

from benchmarks.recommender.loading import training_users
from benchmarks.recommender.movielens_like import movielens_like
from benchmarks.recommender.per_row_sampler import PerRowSampler
from benchmarks.recommender.training_steps import left_padded, train_sequences
from datamodules.recommender.negatives.negative_mixture import NegativeOptions
from engine.data.samplers import MicroBatchRequest
from lightning_modules.recommender.networks.attention.time_interval import time_intervals

LENGTH, SPAN = 40, 256


def test_rows_and_intervals_equal_those_of_the_batched_sampler() -> None:
    events = movielens_like(8, 2300)
    sequences = train_sequences(events, LENGTH)
    batch = sequences[MicroBatchRequest(0, np.arange(8))]
    rows = PerRowSampler(training_users(events, sequences), 2300, LENGTH, SPAN).batch(list(range(8)))
    items, targets = left_padded(batch, LENGTH)
    np.testing.assert_array_equal(rows.items, items)
    np.testing.assert_array_equal(rows.targets, targets)
    ours = time_intervals(batch.history.times, batch.history.time_scale, SPAN)
    for row, count in enumerate(batch.history.lengths.tolist()):
        np.testing.assert_array_equal(rows.intervals[row, -count:, -count:], ours[row, :count, :count])
    assert len(torch.unique(ours)) > 20, "a case with few intervals proves little"


def test_negatives_of_both_are_new_to_the_user() -> None:
    events = movielens_like(8, 2300)
    sequences = train_sequences(events, LENGTH, negatives=NegativeOptions(1))
    users = training_users(events, sequences)
    batch = sequences[MicroBatchRequest(0, np.arange(8))]
    rows = PerRowSampler(users, 2300, LENGTH, None).batch(list(range(8)))
    assert rows.intervals is None
    for row, user in enumerate(users):
        for negatives, real in (
            (rows.negatives[row], rows.targets[row] > 0),
            (batch.negatives[row, :, 0].numpy(), batch.targets[row].numpy() > 0),
        ):
            assert not set(negatives[real].tolist()) & {0, *user.items}
            assert (negatives[~real] == 0).all()

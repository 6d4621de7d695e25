"""Tests that a batch can be divided into groups of similar length without a change of its rows."""

import numpy as np
import pytest
import torch

from datamodules.recommender.dataset import TrainDataset
from datamodules.recommender.events import EventArrays
from datamodules.recommender.length_groups import LengthGroups
from datamodules.recommender.negatives.negative_mixture import NegativeOptions
from datamodules.recommender.user_histories import personal_time_scale
from engine.data.samplers import PADDING_INDEX, MicroBatchRequest


@pytest.fixture
def rows():
    lengths = np.array([3, 30, 2, 12, 7, 20, 5, 3])
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    generator = np.random.default_rng(0)
    items = generator.integers(1, 50, offsets[-1]).astype(np.int32)
    events = EventArrays(offsets, items, np.arange(offsets[-1]) * 60, 50)
    scale = personal_time_scale(events, offsets[1:])
    return TrainDataset(
        events, (np.arange(8), offsets[1:]), max_length=25, time_scale=scale, seed=1, negatives=NegativeOptions(2)
    )


def by_user(batches):
    found = {}
    for batch in batches:
        for row, user in enumerate(batch.users.tolist()):
            n = int(batch.history.lengths[row])
            found[user] = [
                x[row, :n].tolist() for x in (batch.history.items, batch.history.times, batch.targets, batch.negatives)
            ]
    return found


@pytest.mark.parametrize("groups", [1, 3, 8, 20])
def test_the_batch_stays_the_same(rows, groups):
    draw = MicroBatchRequest(4, np.array([5, 1, 0, 2, 7, 3]))
    parts = LengthGroups(rows, groups)[draw]
    assert len(parts) == min(groups, 6)
    assert by_user(parts) == by_user([rows[draw]])


def test_rows_of_similar_length_are_together(rows):
    parts = LengthGroups(rows, 4)[MicroBatchRequest(0, np.arange(8))]
    widths = [part.targets.shape[1] for part in parts]
    assert widths == sorted(widths)
    real = sum(int((part.targets > 0).sum()) for part in parts)
    assert real / sum(part.targets.numel() for part in parts) > 1.5 * real / (8 * max(widths))


def test_a_filler_is_a_row_without_weight(rows):
    (part,) = LengthGroups(rows, 4)[MicroBatchRequest(0, np.array([PADDING_INDEX]))]
    assert part.users.tolist() == [-1]
    assert torch.count_nonzero(part.targets) == 0


def test_no_groups_are_refused(rows):
    with pytest.raises(ValueError, match="length_groups must be at least 1, got 0"):
        LengthGroups(rows, 0)

"""Tests that a corrupt sequence is reported with user and event before a kernel fails."""

import numpy as np
import pytest

from datamodules.recommender.dataset import RankingDataset, TrainDataset
from datamodules.recommender.events import EventArrays
from datamodules.recommender.negatives.negative_mixture import NegativeOptions
from engine.data.errors import BadSampleError
from engine.data.sample_loading import load_batch_skipping_bad
from engine.data.samplers import PADDING_INDEX, MicroBatchRequest

OFFSETS = np.array([0, 4, 8, 12])


def events(**changed):
    """Three users with four events each."""
    items, times = np.arange(1, 13, dtype=np.int32), np.tile(np.arange(4), 3)
    for position, item in changed.get("items", {}).items():
        items[position] = item
    for position, time in changed.get("times", {}).items():
        times[position] = time
    return EventArrays(OFFSETS, items, times, 12)


def train(of):
    return TrainDataset(
        of,
        (np.arange(3), OFFSETS[1:]),
        max_length=3,
        time_scale=np.ones(3, np.int64),
        seed=1,
        negatives=NegativeOptions(2),
    )


def ranking(of):
    return RankingDataset(of, (np.arange(3), OFFSETS[1:] - 1), max_length=3, time_scale=np.ones(3, np.int64))


@pytest.mark.parametrize("examples", [train, ranking])
@pytest.mark.parametrize(
    ("changed", "messages"),
    [
        ({"items": {6: 13}}, "event 6: item 13, expected 1 to 12"),
        ({"items": {4: 0}}, "event 4: item 0, expected 1 to 12"),
        ({"items": {7: -2}}, "event 7: item -2, expected 1 to 12"),  # to be predicted by the last position, or ranked
        ({"times": {6: 0}}, "event 6: time 0, earlier than the previous event of the user"),
    ],
)
def test_only_a_corrupt_sequence_is_named_and_skipped(examples, changed, messages):
    data, draw = examples(events(**changed)), MicroBatchRequest(0, np.array([2, 1, 0]))
    with pytest.raises(BadSampleError, match="sample 1, user row 1, " + messages):
        data[draw]
    batch, skipped = load_batch_skipping_bad(data.__getitem__, draw)
    assert [skip.sample for skip in skipped] == [1]
    assert batch.users.tolist() == [2, 0]
    alone, _ = load_batch_skipping_bad(data.__getitem__, MicroBatchRequest(0, np.array([1])))
    assert alone.users.tolist() == [-1]


@pytest.mark.parametrize("examples", [train, ranking])
def test_sound_sequences_are_read(examples):
    batch = examples(events())[MicroBatchRequest(0, np.array([1, PADDING_INDEX, 0, 2]))]
    assert batch.users.tolist() == [1, -1, 0, 2]

"""Tests which items are trained, and negatives among them alone."""

import numpy as np
import pytest

from datamodules.recommender.events import EventArrays
from datamodules.recommender.features.trained_items import TrainedItems, items_of_examples
from datamodules.recommender.negatives.uniform_negatives import absent_items
from datamodules.recommender.splits import SplitExamples

EVENTS = EventArrays(
    np.array([0, 3, 4, 8, 10]), np.array([1, 2, 9, 5, 2, 7, 7, 3, 4, 6], np.int32), np.arange(10), num_items=11
)
EXAMPLES = SplitExamples(np.array([0, 2, 3]), np.array([2, 7, 10]))  # user 1 has a single event, so there is no row


@pytest.mark.parametrize("chunk", [1, 3, 4, 100])
def test_the_items_of_the_training_rows_are_found_in_chunks(chunk):
    assert np.flatnonzero(items_of_examples(EVENTS, EXAMPLES, chunk)).tolist() == [1, 2, 4, 6, 7]


def test_trained_items_are_numbered_without_gaps():
    trained = TrainedItems.from_mask(items_of_examples(EVENTS, EXAMPLES))
    assert trained.items.tolist() == [1, 2, 4, 6, 7]
    assert trained.number_of.tolist() == [0, 1, 2, 0, 3, 0, 4, 5, 0, 0, 0, 0]


def test_negatives_are_uniform_over_the_absent_trained_items():
    trained = TrainedItems.from_mask(items_of_examples(EVENTS, EXAMPLES))
    starts, ends = EVENTS.offsets[EXAMPLES.users], EXAMPLES.ends
    draws = absent_items(EVENTS, starts, ends, 3, np.arange(3)[:, None], np.arange(3000), among=trained)
    for row, (start, end) in enumerate(zip(starts, ends, strict=True)):
        absent = sorted(set(trained.items) - set(EVENTS.items[start:end].tolist()))
        items, counts = np.unique(draws[row], return_counts=True)
        assert items.tolist() == absent
        assert np.abs(counts - 3000 / len(absent)).max() < 5 * np.sqrt(3000 / len(absent))


def test_a_mask_of_all_items_draws_the_same_negatives_as_none():
    bounds = EVENTS.offsets[:-1], EVENTS.offsets[1:]
    everything = TrainedItems.from_mask(np.arange(12) > 0)
    ours, theirs = (
        absent_items(EVENTS, *bounds, 1, np.arange(4)[:, None], np.arange(50), among=among)
        for among in (everything, None)
    )
    np.testing.assert_array_equal(ours, theirs)

"""Tests the popularity and transition baselines against counts."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lightning_modules.recommender import baselines
from lightning_modules.recommender.baselines import LastItemTransition, Popularity
from lightning_modules.recommender.ranking_metrics import RankingMetrics, ranks
from tests.support.recommender.histories import NUM_ITEMS, history_of, interactions

ML_1M = Path(__file__).resolve().parents[3] / "../shared/data/ml-1m/canonical_sasrec_order.txt"


@settings(max_examples=60, deadline=None)
@given(interactions(), st.integers(1, 9))
def test_baselines_equal_dense_counting(example, chunk):
    users, ends, offsets, items, train_end = example
    popularity, transitions = np.zeros(NUM_ITEMS + 1), np.zeros((NUM_ITEMS + 1, NUM_ITEMS + 1))
    for user, end in zip(users, ends, strict=True):
        for position in range(end):
            popularity[user[position]] += 1
            if position + 1 < end:
                transitions[user[position], user[position + 1]] += 1
    history = history_of([*users, [], [3]])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(baselines, "_CHUNK", chunk)
        popular = Popularity(offsets, items, train_end, NUM_ITEMS).scores(history)
        following = LastItemTransition(offsets, items, train_end, NUM_ITEMS).scores(history)
    assert popular.shape == following.shape == (len(users) + 2, NUM_ITEMS + 1)
    for row, last in enumerate([*(user[-1] if user else 0 for user in users), 0, 3]):
        assert popular[row, 1:].tolist() == popularity[1:].tolist()
        expected = transitions[last] + popularity / (popularity.max() + 1)
        assert following[row, 1:].tolist() == pytest.approx(expected[1:].tolist())
    assert torch.isneginf(popular[:, 0]).all()
    assert torch.isneginf(following[:, 0]).all()


def test_transitions_take_memory_for_pairs_that_occur_only():
    items = np.array([1, 900_000, 1, 900_000, 2], np.int32)
    model = LastItemTransition(np.array([0, 5]), items, np.array([5]), 1_000_000)
    assert model.followers.tolist() == [900_000, 1, 2]
    assert model.counts.tolist() == [2, 1, 1]
    scores = model.scores(history_of([[900_000]]))
    assert scores[0].topk(2).indices.tolist() == [1, 2]


def test_events_after_the_training_part_do_not_count():
    offsets, items = np.array([0, 4]), np.array([1, 2, 3, 3], np.int32)
    full = LastItemTransition(offsets, items, np.array([2]), 3)
    cut = LastItemTransition(np.array([0, 2]), items[:2], np.array([2]), 3)
    history = history_of([[1], [2], [3]])
    assert torch.equal(full.scores(history), cut.scores(history))


@pytest.mark.skipif(not ML_1M.is_file(), reason=f"needs the MovieLens-1M sequences at {ML_1M}")
def test_popularity_on_movielens_lands_where_it_must():
    """Popularity needs no time stamps, so this checks the whole evaluation: split, seen items, ties, metrics."""
    users, items = np.loadtxt(ML_1M, dtype=np.int64, unpack=True)
    offsets = np.concatenate([[0], np.cumsum(np.bincount(users)[1:])])
    popularity = Popularity(offsets, items, offsets[1:] - 2, int(items.max()))
    metrics = RankingMetrics()
    for start in range(0, len(offsets) - 1, 500):
        bounds = list(pairwise(offsets))[start : start + 500]
        seen = history_of([items[low : high - 1].tolist() for low, high in bounds])
        metrics.update(
            ranks(popularity.scores(seen), torch.tensor([items[high - 1] for _, high in bounds]), seen.items)
        )
    values = metrics.compute()
    assert metrics.count == 6_040
    assert 0.036 <= values["hr@10"] <= 0.038
    assert 0.0175 <= values["ndcg@10"] <= 0.0185

"""Tests coverage, novelty and popularity of recommended items against loops over users."""

import math

import numpy as np
import pytest

from lightning_modules.recommender.item_ranks.rank_file import Recommended
from lightning_modules.recommender.item_ranks.recommendation_metrics import recommendation_metrics

EVENTS = [6, 1, 1, 0, 0]
ITEMS = [[1, 2, 3], [1, 4, 0], [2, 0, 0], [0, 0, 0]]
RECOMMENDED = Recommended(np.array(ITEMS, np.int32), np.array(EVENTS, np.int32))


def mean(values):
    return sum(values) / len(values)


@pytest.mark.parametrize("cutoff", [1, 2, 3])
@pytest.mark.parametrize("rows", [[0, 1, 2, 3], [1], [2, 0]])
def test_metrics_equal_a_loop_over_users(rows, cutoff):
    users = [[item for item in ITEMS[row][:cutoff] if item] for row in rows]
    found = recommendation_metrics(RECOMMENDED, np.array(rows), cutoff)
    assert found.coverage == len({item for user in users for item in user}) / 5
    bits = [mean([-math.log2(max(EVENTS[item - 1], 1) / 8) for item in user]) for user in users if user]
    events = [mean([EVENTS[item - 1] for item in user]) for user in users if user]
    for interval, values in ((found.novelty, bits), (found.popularity, events)):
        assert interval.value == pytest.approx(mean(values))
        assert min(values) - 1e-9 <= interval.low <= interval.value <= interval.high <= max(values) + 1e-9


def test_users_without_recommendations_have_neither_novelty_nor_popularity():
    assert recommendation_metrics(RECOMMENDED, np.array([3]), 3) == (0.0, None, None)

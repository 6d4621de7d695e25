"""Computes coverage, novelty and popularity of the items that are recommended to some users, at a cutoff.

The definitions are those of `BeyondAccuracyMetrics`. Novelty and popularity are means over users of the mean of the
user's items, and so have intervals. Coverage is a property of a set of users, and not a mean over them: resamples have
fewer distinct users, so a bootstrap of it would be biased.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.statistics.bootstrap import Floats, Interval, bootstrap_mean
from lightning_modules.recommender.item_ranks.rank_file import Recommended


class RecommendationMetrics(NamedTuple):
    """Metrics of the recommended items of some users."""

    coverage: float  # share of the catalog that is recommended to at least one of the users
    novelty: Interval | None  # bits, mean self-information of a recommended item; None without a recommendation
    popularity: Interval | None  # mean number of training events of a recommended item


def recommendation_metrics(recommended: Recommended, rows: NDArray[np.integer], cutoff: int) -> RecommendationMetrics:
    """Return the metrics of the best `cutoff` items of some users.

    Args:
        recommended: recommended items of all users, at least `cutoff` of each.
        rows: [n] rows of the users in them.
        cutoff: number of items of a user.
    """
    items, events = recommended.items[rows, :cutoff], recommended.item_events.astype(np.float64)
    # A share of 0 would have an infinite self-information: an item without an event counts as an item with one.
    bits = -np.log2(np.maximum(events, 1) / events.sum())
    coverage = len(np.unique(items[items > 0])) / len(events)
    return RecommendationMetrics(coverage, _mean_interval(items, bits), _mean_interval(items, events))


def _mean_interval(items: NDArray[np.integer], values: Floats) -> Interval | None:
    """Return the mean over users of the mean value of their items.

    Args:
        items: [n, k] items from 1, 0 for none. Users without items do not count.
        values: [I] value of each item.
    """
    number = (items > 0).sum(1)
    sums = np.concatenate([[0.0], values])[items].sum(1)
    counted = number > 0
    return bootstrap_mean(sums[counted] / number[counted]) if counted.any() else None

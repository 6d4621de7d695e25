"""Tests the groups of items by popularity."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from lightning_modules.recommender.item_ranks.item_groups import popularity_bounds


def test_popularity_bounds_keep_equal_items_together():
    # 100 events: the first item has a fifth of them, the last six have 18.
    assert popularity_bounds(np.array([20, 18, 16, 15, 13, 4, 4, 4, 3, 2, 1])) == (20, 4)
    assert popularity_bounds(np.array([19, 19, 16, 15, 13, 4, 4, 4, 3, 2, 1])) == (19, 4), "equal items are together"


@settings(max_examples=40)
@given(st.lists(st.integers(0, 30), min_size=1, max_size=20).filter(any))
def test_head_and_tail_are_the_smallest_and_the_largest_groups(counts):
    """Against a loop over all bounds."""
    head_from, tail_to = popularity_bounds(np.array(counts))
    total = sum(counts)
    heads = [bound for bound in counts if sum(n for n in counts if n >= bound) >= 0.2 * total]
    tails = [bound for bound in (0, *counts) if sum(n for n in counts if n <= bound) <= 0.2 * total]
    assert head_from == max(heads)
    # A group that would be all items with at most so many events; the head keeps its own.
    assert max(bound for bound in tails if bound < head_from) == max([0, *(n for n in counts if n <= tail_to)])
    assert tail_to < head_from

"""Tests the groups of users in the metrics by group."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from lightning_modules.recommender.item_ranks.rank_file import RankHeader, UserRanks
from lightning_modules.recommender.item_ranks.user_groups import user_groups


def grouped(history, popularity, head_from=40, tail_to=3):
    """{name of the group: numbers of its users}."""
    size = len(history)
    ranks = UserRanks(
        RankHeader("test", "", 1, head_from, tail_to),
        [f"{user:03}" for user in range(size)],
        ["item"] * size,
        np.array(history),
        np.array(popularity),
        np.arange(1, size + 1),
        np.full(size, size),
    )
    return {group.name: group.rows.tolist() for group in user_groups(ranks)}


def test_users_are_grouped_by_history_length_and_target_popularity():
    groups = grouped([2, 9, 3, 4, 30, 5, 8, 6], [40, 39, 4, 3, 0, 50, 5, 2])
    assert groups == {
        "all users": [0, 1, 2, 3, 4, 5, 6, 7],
        "history: 2 to 3 events": [0, 2],
        "history: 4 to 5 events": [3, 5],
        "history: 6 to 8 events": [6, 7],
        "history: 9 to 30 events": [1, 4],
        "head targets: 40 or more": [0, 5],
        "middle targets: 4 to 39": [1, 2, 6],
        "tail targets: 3 or fewer": [3, 4, 7],
    }


def test_equal_users_are_one_group_and_empty_groups_are_left_out():
    assert grouped([7] * 5, [2] * 5, head_from=5, tail_to=3) == {
        name: [0, 1, 2, 3, 4] for name in ("all users", "history: 7 events", "tail targets: 3 or fewer")
    }
    assert "middle targets: 4" in grouped([7] * 2, [4, 1], head_from=5, tail_to=3)


@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 60)), min_size=1, max_size=40))
def test_quartiles_and_items_each_divide_the_users(users):
    history, popularity = zip(*users, strict=True)
    groups = grouped(history, popularity)
    quartiles = [own for name, own in groups.items() if name.startswith("history")]
    targets = [own for name, own in groups.items() if "targets" in name]
    for parts in (quartiles, targets):
        assert sorted(user for own in parts for user in own) == list(range(len(users)))
    # Longer histories are in later groups, and none begins before a quarter of the users is in those before it.
    for before, after in zip(quartiles, quartiles[1:], strict=False):
        assert max(history[user] for user in before) < min(history[user] for user in after)
        assert sum(map(len, quartiles[: quartiles.index(before) + 1])) >= len(users) / 4

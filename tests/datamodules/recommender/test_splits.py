"""Tests the splits of interactions: leave-one-out, temporal, and everything."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from datamodules.recommender.splits import leave_one_out, no_holdout, temporal_split
from datamodules.recommender.store.interaction_store import InteractionStore


def make_store(users: list[list[tuple[int, int]]]) -> InteractionStore:
    """A store in memory of users' (item, time) events."""
    events = np.array([event for user in users for event in user])
    meta = {
        "num_users": len(users),
        "num_items": int(events[:, 0].max()),
        "num_interactions": len(events),
        "source": {},
    }
    offsets = np.cumsum([0] + [len(user) for user in users])
    return InteractionStore(Path("memory"), meta, {"offsets": offsets, "items": events[:, 0], "times": events[:, 1]})


def test_leave_one_out_holds_out_the_last_two_events() -> None:
    store = make_store([[(1, 1)], [(1, 1), (2, 2)], [(1, 1), (2, 2), (3, 3)], [(4, 1)] * 5])
    splits = leave_one_out(store)
    assert splits.train.users.tolist() == [1, 3]  # a row needs an input and a target
    assert splits.train.ends.tolist() == [3, 9]
    assert splits.train_end.tolist() == [1, 3, 4, 9]
    assert splits.validation.users.tolist() == splits.test.users.tolist() == [2, 3]
    assert store.items[splits.validation.ends[0]] == 2
    assert store.items[splits.test.ends[0]] == 3
    start, end = store.offsets[2], splits.test.ends[0]
    assert store.items[start:end].tolist() == [1, 2], "the test history contains the validation event"


def test_leave_one_out_is_refused_without_a_user_to_evaluate() -> None:
    with pytest.raises(ValueError, match="no user has 3 events"):
        leave_one_out(make_store([[(1, 1)], [(1, 1), (2, 2)]]))


def test_temporal_takes_the_first_event_of_each_period() -> None:
    store = make_store(
        [
            [(1, 10), (2, 11), (3, 20), (4, 25), (5, 30), (6, 31)],
            [(1, 19), (2, 30)],  # nothing in the validation period
            [(3, 20), (4, 30)],  # no history before it, but before the test period
            [(5, 40)],  # no history at all
        ],
    )
    splits = temporal_split(store, validation_from=20, test_from=30)
    assert splits.train_end.tolist() == [2, 7, 8, 10]
    assert splits.train.users.tolist() == [0]
    assert splits.validation.users.tolist() == [0]
    assert store.items[splits.validation.ends].tolist() == [3]
    assert splits.test.users.tolist() == [0, 1, 2]
    assert store.items[splits.test.ends].tolist() == [5, 2, 4]
    assert splits.without_history == {"validation": 1, "test": 1}


def test_a_temporal_split_by_shares_equals_that_by_seconds() -> None:
    store = make_store([[(1, time) for time in range(100, 200)]])
    by_share = temporal_split(store, 0.8, 0.9)
    by_second = temporal_split(store, 180, 190)
    assert by_share.train_end.tolist() == by_second.train_end.tolist() == [80]
    assert by_share.test.ends.tolist() == by_second.test.ends.tolist() == [90]


@pytest.mark.parametrize(
    ("cut_offs", "message"),
    [
        ((0.9, 0.8), "must lie before"),
        ((-1, 5), "expected a share"),
        (
            (10**9, 2 * 10**9),
            r"validation_from 1e\+09 and test_from 2e\+09 \(seconds .*leave no validation example; .*leave_one_out",
        ),
        ((1.5, 190), r"validation_from 1.5 and test_from 190 \(seconds 2 and 190\) leave no training example"),
    ],
)
def test_temporal_refuses_cut_offs_that_split_nothing(cut_offs: tuple[float, float], message: str) -> None:
    store = make_store([[(1, time) for time in range(100, 200)]])
    with pytest.raises(ValueError, match=message):
        temporal_split(store, *cut_offs)


user_events = st.lists(st.integers(0, 60), min_size=3, max_size=12).map(lambda times: [(1, t) for t in sorted(times)])


@given(users=st.lists(user_events, min_size=3, max_size=6), first=st.integers(15, 40), gap=st.integers(1, 20))
def test_temporal_never_shows_the_future(users: list[list[tuple[int, int]]], first: int, gap: int) -> None:
    store = make_store(users)
    try:
        splits = temporal_split(store, first, first + gap)
    except ValueError:
        reject()  # the cut-offs leave a part empty
    for examples, start, stop in ((splits.validation, first, first + gap), (splits.test, first + gap, 10**9)):
        for user, end in zip(examples.users, examples.ends, strict=True):
            history = store.times[store.offsets[user] : end]
            assert len(history) > 0
            assert (history < start).all()
            assert start <= store.times[end] < stop
            assert end < store.offsets[user + 1], "the target is the user's own"
    for user, end in enumerate(splits.train_end):
        assert (store.times[store.offsets[user] : end] < first).all()
        assert (store.times[end : store.offsets[user + 1]] >= first).all()


def test_everything_trains_on_all_events() -> None:
    store = make_store([[(1, 1)], [(1, 1), (2, 2)], [(1, 1), (2, 2), (3, 3)]])
    splits = no_holdout(store)
    assert splits.train.users.tolist() == [1, 2]
    assert splits.train.ends.tolist() == [3, 6]
    assert splits.train_end.tolist() == [1, 3, 6]
    assert len(splits.validation.users) == len(splits.test.users) == 0
    with pytest.raises(ValueError, match="no user has 2 events, so there is nothing to train"):
        no_holdout(make_store([[(1, 1)]]))

"""Tests that evaluations whose metrics are not reliable are reported with their numbers."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datamodules.recommender.evaluation_size import EvaluationSize, evaluation_size, evaluation_warnings, trained_items
from datamodules.recommender.events import EventArrays
from datamodules.recommender.splits import SplitExamples, Splits, leave_one_out, no_holdout
from datamodules.recommender.store.interaction_store import InteractionStore


def make_events(users):
    """Events of users' items, a second apart."""
    items = np.array([item for user in users for item in user], np.int32)
    offsets = np.cumsum([0, *map(len, users)])
    return EventArrays(offsets, items, np.arange(len(items)), int(items.max()))


def make_store(users):
    events = make_events(users)
    meta = {"num_users": len(users), "num_items": events.num_items, "num_interactions": len(events.items), "source": {}}
    return InteractionStore(
        Path("memory"), meta, {"offsets": events.offsets, "items": events.items, "times": events.times}
    )


@given(st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=6), min_size=1, max_size=8), st.data())
def test_trained_items_and_counts_equal_a_loop_over_users(users, data):
    events = make_events(users)
    ends = [data.draw(st.integers(0, len(user))) for user in users]
    expected = {item for user, end in zip(users, ends, strict=True) for item in user[:end]}
    trained = trained_items(events, events.offsets[:-1] + ends, chunk=data.draw(st.integers(1, 50)))
    assert set(np.flatnonzero(trained)) == expected
    ranked = [number for number, (user, end) in enumerate(zip(users, ends, strict=True)) if end < len(user)]
    examples = SplitExamples(np.array(ranked, np.int64), (events.offsets[:-1] + ends)[ranked])
    size = evaluation_size(examples, events, trained)
    assert size == (len(ranked), sum(users[number][ends[number]] not in expected for number in ranked))


@pytest.mark.parametrize(
    ("size", "problem"),
    [
        (EvaluationSize(100, 20), ""),
        (EvaluationSize(99, 0), "only 99 users (a metric's standard error is up to 0.05)"),
        (EvaluationSize(200, 41), "41 of 200 targets (20%) whose items are never trained"),
        (
            EvaluationSize(20, 11),
            "only 20 users (a metric's standard error is up to 0.11) and "
            "11 of 20 targets (55%) whose items are never trained",
        ),
    ],
)
def test_few_users_and_many_untrained_targets_are_a_problem(size, problem):
    assert size.problem == problem


def test_each_weak_evaluation_has_a_sentence():
    store = make_store([[1, 2, 1, number % 5 + 4] for number in range(120)])
    assert not list(evaluation_warnings(store, leave_one_out(store), with_features=True))
    (test,) = evaluation_warnings(store, leave_one_out(store))
    unseen = "the test has 120 of 120 targets (100%) whose items are never trained"
    assert test == f"{unseen}, so its metrics are not reliable"
    validation, _ = evaluation_warnings(
        store, leave_one_out(store)._replace(validation=SplitExamples(*np.array([[0], [2]])))
    )
    assert validation.startswith("the validation has only 1 users")
    assert validation.endswith("so its metrics are not reliable; best.ckpt and EarlyStopping follow them")


def test_without_an_evaluation_there_is_nothing_to_say():
    store = make_store([[1, 2], [2, 1, 3]])
    assert list(evaluation_warnings(store, no_holdout(store))) == []
    assert isinstance(no_holdout(store), Splits)

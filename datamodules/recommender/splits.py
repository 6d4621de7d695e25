"""Splits the events into training, validation and test.

Both splits are prefixes of users' histories without copies: an example is a user's row and an index into the store.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from datamodules.recommender.store.interaction_store import InteractionStore


class SplitExamples(NamedTuple):
    """M prefixes: `items[offsets[user]:end]`."""

    users: NDArray[np.int64]  # [M] row of the user
    ends: NDArray[np.int64]  # [M] index into store.items after the prefix; in evaluations the index of the target


class Splits(NamedTuple):
    """The parts of a store.

    A training row predicts the next item at each position of its prefix: input `prefix[:-1]`, targets `prefix[1:]`.
    Users with fewer than two training events have no row. An evaluation example ranks the event after its prefix.
    """

    train: SplitExamples
    validation: SplitExamples
    test: SplitExamples
    train_end: NDArray[np.int64]  # [U] end of each user's training part, including users without a row
    without_history: dict[str, int]  # {"validation" or "test": number of users with a target but without a history}


def leave_one_out(store: InteractionStore) -> Splits:
    """Split off the last event for the test and the second last event for the validation.

    The other events are for training (Kang and McAuley, SASRec, ICDM 2018, section IV-A). The test history contains the
    validation event. Users with fewer than three events are used for training only.

    Raises:
        ValueError: no user has three events.
    """
    starts, stops = _bounds(store)
    evaluated = stops - starts >= 3
    if not evaluated.any():
        raise ValueError(
            f"{store.root}: no user has 3 events, so leave-one-out has no user to evaluate; lower "
            "data.init_args.min_item_interactions, or set data.init_args.split none to train without an evaluation"
        )
    users = np.flatnonzero(evaluated)
    # Users with fewer than three events train on all of them.
    train_end = np.where(evaluated, stops - 2, stops)
    validation, test = SplitExamples(users, stops[users] - 2), SplitExamples(users, stops[users] - 1)
    return Splits(_training(starts, train_end), validation, test, train_end, {"validation": 0, "test": 0})


def temporal_split(store: InteractionStore, validation_from: float, test_from: float) -> Splits:
    """Cut the data set at two points in time, as a deployed model encounters it.

    The target is the user's *first* event in the period `[validation_from, test_from)` or `[test_from, end]`. The
    history is everything before the period begins, so no event at or after a cut-off is in a history or in the training
    part. Users whose first event lies in the period have no history; they are skipped and counted.

    Args:
        store: the interactions to split.
        validation_from: start of the validation period: seconds since 1970, or, between 0 and 1, the share of all
            interactions before it.
        test_from: start of the test period, likewise.

    Raises:
        ValueError: the store has no times, the cut-offs are not in order, or a part is empty.
    """
    if not store.has_times:
        raise ValueError(
            f"{store.root}: found events without times, and data.init_args.split temporal cuts them by time; name the "
            "column with data.init_args.time_column, or set data.init_args.split to leave_one_out"
        )
    validation_start, test_start = (_moment(store, value) for value in (validation_from, test_from))
    if validation_start >= test_start:
        raise ValueError(
            f"data.init_args.validation_from ({validation_from}, second {validation_start}) must lie before "
            f"test_from ({test_from}, second {test_start})"
        )
    starts, stops = _bounds(store)
    train_end, test_end = _first_at(store, validation_start), _first_at(store, test_start)
    validation, cold_validation = _first_events(starts, train_end, test_end)
    test, cold_test = _first_events(starts, test_end, stops)
    train = _training(starts, train_end)
    for name, examples in (("training", train), ("validation", validation), ("test", test)):
        if not len(examples.users):
            raise ValueError(
                f"{store.root}: data.init_args.validation_from {validation_from:g} and test_from {test_from:g} "
                f"(seconds {validation_start} and {test_start}) leave no {name} example; the events lie between "
                f"{store.times.min()} and {store.times.max()}. Move them, or set data.init_args.split leave_one_out"
            )
    return Splits(train, validation, test, train_end, {"validation": cold_validation, "test": cold_test})


def no_holdout(store: InteractionStore) -> Splits:
    """Train on all events, for a final model after its settings have been chosen. Nothing is held out.

    Raises:
        ValueError: no user has two events.
    """
    starts, stops = _bounds(store)
    train = _training(starts, stops)
    if not len(train.users):
        raise ValueError(
            f"{store.root}: no user has 2 events, so there is nothing to train; check data.init_args.user_column"
        )
    none = SplitExamples(np.zeros(0, np.int64), np.zeros(0, np.int64))
    return Splits(train, none, none, stops, {"validation": 0, "test": 0})


def _bounds(store: InteractionStore) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    offsets = np.asarray(store.offsets)
    return offsets[:-1], offsets[1:]


def _training(starts: NDArray[np.int64], train_end: NDArray[np.int64]) -> SplitExamples:
    users = np.flatnonzero(train_end - starts >= 2)
    return SplitExamples(users, train_end[users])


def _moment(store: InteractionStore, value: float) -> int:
    if value <= 0:
        raise ValueError(f"found cut-off {value}, expected a share between 0 and 1 or seconds since 1970")
    if value >= 1:
        # Times are whole seconds.
        return math.ceil(value)
    # The time with this share of all interactions before it, without a sort of all times.
    index = int(value * store.num_interactions)
    return int(np.partition(store.times, index)[index])


def _first_at(store: InteractionStore, moment: int) -> NDArray[np.int64]:
    """Return the index of each user's first event at or after a moment, int64 [U].

    A user without such an event gets the index after the last event.
    """
    starts, _ = _bounds(store)
    # A user's events are ordered by time, so the events before the moment are counted. This needs
    # an event for every user, which a store has: reduceat of an empty range returns its first element.
    return starts + np.add.reduceat(store.times < moment, starts, dtype=np.int64)


def _first_events(
    starts: NDArray[np.int64], begin: NDArray[np.int64], end: NDArray[np.int64]
) -> tuple[SplitExamples, int]:
    """Return the examples of users with an event in `[begin, end)` and a history, and the number of those without."""
    active, has_history = begin < end, begin > starts
    users = np.flatnonzero(active & has_history)
    return SplitExamples(users, begin[users]), int(np.sum(active & ~has_history))

"""Reads the input of `predict`: histories to predict for, times of the request, and items it may recommend."""

import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from datamodules.recommender.events import Events
from datamodules.recommender.features.event_feature_settings import EventFeatures
from datamodules.recommender.features.history_features import HistoryFeatures
from datamodules.recommender.reading.item_lists import ItemLists
from datamodules.recommender.reading.predict_histories import Histories, read_histories
from datamodules.recommender.store.interaction_store import InteractionStore
from engine.timestamp import EXPECTED_TIME, to_seconds

log = logging.getLogger("lockstep")

TIME_OPTION = "data.init_args.predict_request_time"


class PredictionInput:
    """The options `predict_histories`, `predict_request_time`, `allow_items` and `deny_items` of InteractionSequences.

    Raises:
        ValueError: `predict_request_time` is neither a time nor an ISO 8601 date, or each history has a time of its
            own.
    """

    excluded_items: NDArray[np.bool_] | None = None
    """[item_ids + 1] items that `predict` must not recommend; None if it may recommend all."""

    users: Sequence[str]
    """[rows] user of each history, once they are read."""

    _untimed_line: int | None = None
    """First line of the file without times."""

    _undated_line: int | None = None
    """First line of the file without a time of the request."""

    def __init__(self, path: str | None, request_time: float | str | None, item_lists: ItemLists) -> None:
        self.path, self.item_lists = path, item_lists
        self.request_time = parse_predict_request_time(request_time, path)

    def read(
        self, events: InteractionStore, item_ids: Sequence[str], features: EventFeatures | None = None
    ) -> Histories:
        """Read the lists of items, and return the histories to predict for.

        Args:
            events: events of all users of the data.
            item_ids: ids of the items of the data and of those that have features and no interaction.
            features: columns of the features of events, which are keys of a file of histories.

        Raises:
            FileNotFoundError: a file does not exist.
            InteractionError: a file cannot be read, or its list leaves no item to recommend.
            ValueError: a user of the data has an event after `predict_request_time`.
        """
        self.excluded_items, reports = self.item_lists.read_excluded(item_ids)
        for report in reports:
            log.warning("%s", report)
        if self.path is None:
            histories = self.whole_histories(events)
        else:
            histories = self._read_file(Path(self.path), item_ids, features)
        self.users, self._untimed_line, self._undated_line = histories.users, histories.untimed, histories.undated
        return histories

    def whole_histories(self, events: InteractionStore) -> Histories:
        """Return every user's whole history. Raises ValueError if a user has an event after `predict_request_time`."""
        users = events.user_ids
        return Histories(events, users, request_times=request_times(events, users, self.request_time))

    def _read_file(self, path: Path, item_ids: Sequence[str], features: EventFeatures | None) -> Histories:
        if not path.exists():
            raise FileNotFoundError(f"data.init_args.predict_histories: {path} does not exist")
        reader = None if features is None else HistoryFeatures(features)
        histories = read_histories(path, item_ids, reader)
        if reader is not None and reader.missing:
            keys = ", ".join(map(repr, reader.missing))
            log.warning(
                "%s: found no line with the key %s; these event_features are missing in all events. If a key is "
                "misspelt, correct it", path, keys,
            )  # fmt: skip
        if histories.report:
            log.warning("%s: %s", path, histories.report)
        return histories

    def require_times(self, reader: str) -> None:
        """Raise ValueError if a history to predict for has no times.

        Args:
            reader: what reads the times, for the message.
        """
        self._require_key("times", "times", self._untimed_line, reader)

    def require_request_times(self, reader: str) -> None:
        """Raise ValueError if a history to predict for has no time of the request.

        Args:
            reader: what reads these times, for the message.
        """
        self._require_key("request_time", "the time of the request", self._undated_line, reader)

    def _require_key(self, key: str, what: str, line: int | None, reader: str) -> None:
        if line is not None:
            raise ValueError(
                f"{self.path}: line {line}: found no key {key!r}, and {reader} reads {what}; add it to every line"
            )


def parse_predict_request_time(value: float | str | None, predict_histories: str | None = None) -> int | None:
    """Return the setting `predict_request_time` in seconds since 1970, rounded down; None for its default.

    Args:
        value: the setting.
        predict_histories: file of histories, each line of which has its own time.

    Raises:
        ValueError: it is neither a time nor an ISO 8601 date, or there is a file of histories.
    """
    if value is None:
        return None
    if predict_histories is not None:
        raise ValueError(
            f"{TIME_OPTION}: found {value}, but each line of predict_histories has its own 'request_time'; remove one "
            "of the two"
        )
    seconds = to_seconds(value)
    if seconds is None:
        raise ValueError(f"{TIME_OPTION}: found {value!r}, expected {EXPECTED_TIME}")
    return int(seconds)


def request_times(events: Events, users: Sequence[str], predict_request_time: int | None) -> NDArray[np.int64]:
    """Return the time of the request of each user: the same for all.

    Args:
        events: events of all users.
        users: [U] ids, for the message.
        predict_request_time: time in seconds; None: the time of the latest event of all users.

    Returns:
        int64 [U]

    Raises:
        ValueError: a user has an event after `predict_request_time`.
    """
    latest = int(events.times.max(initial=0))
    if predict_request_time is None:
        return np.full(len(users), latest, np.int64)
    starts, ends = np.asarray(events.offsets[:-1]), np.asarray(events.offsets[1:])
    filled = np.flatnonzero(ends > starts)
    last = events.times[ends[filled] - 1]
    late = np.flatnonzero(last > predict_request_time)
    if len(late):
        raise ValueError(
            f"{TIME_OPTION}: found {predict_request_time}, and user {users[filled[late[0]]]} has an event at "
            f"{last[late[0]]}; expected a time after all events, the latest of which is at {latest}"
        )
    return np.full(len(users), predict_request_time, np.int64)

"""Time of the request that `predict` answers for users of the data."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from datamodules.recommender.events import Events
from engine.timestamp import EXPECTED_TIME, to_seconds

KEY = "data.init_args.predict_at"


def parse_predict_at(value: float | str | None, predict_histories: str | None = None) -> int | None:
    """Return the setting `predict_at` in seconds since 1970, rounded down; None for its default.

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
            f"{KEY}: found {value}, but each line of predict_histories has its own 'at'; remove one of the two"
        )
    seconds = to_seconds(value)
    if seconds is None:
        raise ValueError(f"{KEY}: found {value!r}, expected {EXPECTED_TIME}")
    return int(seconds)


def request_times(events: Events, users: Sequence[str], predict_at: int | None) -> NDArray[np.int64]:
    """Return the time of the request of each user: the same for all.

    Args:
        events: events of all users.
        users: [U] ids, for the message.
        predict_at: time in seconds; None: that of the latest event of all users.

    Returns:
        int64 [U]

    Raises:
        ValueError: a user has an event after `predict_at`.
    """
    latest = int(events.times.max(initial=0))
    if predict_at is None:
        return np.full(len(users), latest, np.int64)
    starts, ends = np.asarray(events.offsets[:-1]), np.asarray(events.offsets[1:])
    filled = np.flatnonzero(ends > starts)
    last = events.times[ends[filled] - 1]
    late = np.flatnonzero(last > predict_at)
    if len(late):
        raise ValueError(
            f"{KEY}: found {predict_at}, and user {users[filled[late[0]]]} has an event at {last[late[0]]}; expected a "
            f"time after all events, the latest of which is at {latest}"
        )
    return np.full(len(users), predict_at, np.int64)

"""Checks the stored events of a batch; files of interactions are validated in `reading/`.

A store is validated when it is written, but may be corrupted later. An invalid item id would crash the process in the
embedding kernel, on a GPU without naming the sample; a decreasing time would give negative intervals.
"""

import numpy as np
from numpy.typing import NDArray

from datamodules.recommender.events import Events, Integers
from engine.data.errors import BadSampleError


def validate_events(
    events: Events, users: Integers, starts: Integers, ends: Integers, samples: NDArray[np.int64]
) -> None:
    """Validate the events of a request.

    Args:
        events: events of all users.
        users: [B], user of each row.
        starts: [B], first event of each row.
        ends: [B], index after the last event of each row.
        samples: [B], sample of each row, for the message.

    Raises:
        BadSampleError: a row has an item outside 1 to `num_items`, or an event older than its predecessor. The
            message names the first such row.
    """
    counts = ends - starts
    row = np.repeat(np.arange(len(counts)), counts)
    # The events of all rows, row after row: starts[b], ..., ends[b] - 1.
    event_indices = np.arange(len(row)) + np.repeat(starts - (np.cumsum(counts) - counts), counts)
    items, times = events.items[event_indices], events.times[event_indices]
    invalid_item = (items < 1) | (items > events.num_items)
    decreasing = np.diff(times, prepend=times[:1]) < 0
    decreasing &= np.diff(row, prepend=-1) == 0  # the first event of a row has no predecessor
    bad = np.flatnonzero(invalid_item | decreasing)
    if not len(bad):
        return
    first = bad[0]
    found = (
        f"item {items[first]}, expected 1 to {events.num_items}"
        if invalid_item[first]
        else f"time {times[first]}, earlier than the previous event of the user ({times[first - 1]})"
    )
    user, sample = int(users[row[first]]), int(samples[row[first]])
    # Only a store has a folder and ids; the histories of a file are arrays in memory.
    root, ids = getattr(events, "root", None), getattr(events, "user_ids", None)
    where, name = f"{root}: " if root else "", f" ({ids[user]})" if ids else ""
    hint = "; the store is corrupt: delete the folder to rebuild it" if root else ""
    raise BadSampleError(
        f"{where}sample {sample}, user row {user}{name}, event {event_indices[first]}: {found}{hint}", sample
    )

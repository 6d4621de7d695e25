"""Sequences that cannot be used: a store is checked when it is written, and may be damaged afterwards.

An item that is none would end the process in an embedding's kernel, on a GPU without saying where; a time that goes
back gives intervals that are none.
"""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from engine.bad_samples import BadSample

if TYPE_CHECKING:
    from datamodules.recommender.sequences import Events, Integers


def require_sound(
    events: "Events", users: "Integers", starts: "Integers", ends: "Integers", samples: NDArray[np.int64]
) -> None:
    """
    Args:
        users, starts, ends, samples: [B] of the rows; row b reads the events ``starts[b]:ends[b]``.

    Raises:
        BadSample: of the first row that has an item outside 1 to ``num_items``, or an event older than the one before.
    """
    counts = ends - starts
    row = np.repeat(np.arange(len(counts)), counts)
    place = np.arange(len(row)) + np.repeat(starts - (np.cumsum(counts) - counts), counts)
    items, times = events.items[place], events.times[place]
    no_item = (items < 1) | (items > events.num_items)
    back = np.diff(times, prepend=times[:1]) < 0
    back &= np.diff(row, prepend=-1) == 0  # from one row to the next time may go back
    bad = np.flatnonzero(no_item | back)
    if not len(bad):
        return
    first = bad[0]
    found = (
        f"item {items[first]}, expected 1 to {events.num_items}"
        if no_item[first]
        else f"time {times[first]}, before that of the event that precedes it ({times[first - 1]})"
    )
    user, sample = int(users[row[first]]), int(samples[row[first]])
    root, ids = getattr(events, "root", None), getattr(events, "user_ids", None)
    where, name = f"{root}: " if root else "", f" ({ids[user]})" if ids else ""
    again = "; the store is damaged: delete the folder, and it is made again" if root else ""
    raise BadSample(f"{where}sample {sample}, user row {user}{name}, event {place[first]}: {found}{again}", sample)

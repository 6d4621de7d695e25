"""Gathers histories of users, of different lengths, from the events of all users with array operations."""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from datamodules.recommender.batch import History
from datamodules.recommender.events import Events, Integers, user_chunks
from datamodules.recommender.features.event_encoding import EncodedEvents
from engine.data.samplers import MicroBatchRequest


def personal_time_scale(events: Events, ends: Integers, chunk: int = 1 << 22) -> NDArray[np.int64]:
    """Compute the smallest non-zero gap between neighboring events of each user's history.

    The unit is seconds; a user without such a gap gets 1. TiSASRec (Li, Wang and McAuley, WSDM 2020, section 3.1)
    divides a user's intervals by it. The paper uses the whole sequence, which leaks information about the test events;
    a history here ends before the event that is ranked. The rule is the same in training, evaluation, prediction and
    exported models, so that a history has one answer.

    Args:
        events: events of all users.
        ends: int64 [U], end of each user's history; `offsets[u]` if there is none.
        chunk: events processed at once (affects memory, not the result).

    Returns:
        int64 [U]
    """
    infinity = np.iinfo(np.int64).max
    scale = np.full(len(events.offsets) - 1, infinity)
    for first, last in user_chunks(events.offsets, chunk):
        starts = events.offsets[first:last]
        low, high = int(starts[0]), int(events.offsets[last])
        if low == high:
            continue
        # gaps[i] lies between events i and i + 1. The last event has no successor, so its gap is 0.
        gaps = np.diff(events.times[low:high], append=events.times[high - 1])
        gaps[gaps <= 0] = infinity
        # Ignore the gaps that end at or after the end of the history, and with them the gaps between users.
        leaves = np.repeat(ends[first:last], np.diff(events.offsets[first : last + 1])) - 1
        gaps[np.arange(low, high) >= leaves] = infinity
        # Of an empty range, reduceat returns the element at its start, so users without events are excluded.
        filled = np.flatnonzero(np.diff(events.offsets[first : last + 1]))
        scale[first + filled] = np.minimum.reduceat(gaps, starts[filled] - low)
    return np.where(scale == infinity, 1, scale)


def gather(values: Integers, starts: Integers, counts: Integers, width: int) -> NDArray[np.int64]:
    """Gather `values[starts[b]:starts[b] + counts[b]]` as row b, padded with the last value of the row.

    A row without values is 0.

    Args:
        values: [N], a column of all events.
        starts: [B], index of the first value of each row.
        counts: [B], number of values of each row.
        width: length of the rows, at least the largest count.

    Returns:
        int64 [B, width]
    """
    padded, filled = np.zeros((len(starts), width), np.int64), counts > 0
    columns = np.minimum(np.arange(width), counts[filled, None] - 1)  # beyond the row, its last value again
    padded[filled] = values[starts[filled, None] + columns]
    return padded


class HistorySpans(NamedTuple):
    """Events of each of the B rows of a request: `starts[b]:ends[b]`. A padding row has user -1 and no events."""

    users: NDArray[np.int64]  # [B]
    starts: NDArray[np.int64]  # [B], index of the first event
    ends: NDArray[np.int64]  # [B], index after the last event


def find_spans(events: Events, users: Integers, ends: Integers, request: MicroBatchRequest) -> HistorySpans:
    """Return the events of the samples of a request.

    Args:
        events: events of all users.
        users: [M], user of each sample of the data set.
        ends: [M], index after the last event of each sample.
        request: the micro-batch.
    """
    real = request.indices >= 0
    # A padding row has index -1, which numpy reads as the last user; `where` replaces these values.
    drawn = np.where(real, users[request.indices], -1)
    return HistorySpans(drawn, np.where(real, events.offsets[drawn], 0), np.where(real, ends[request.indices], 0))


def gather_history(
    events: Events, spans: HistorySpans, counts: Integers, time_scale: Integers, features: EncodedEvents | None = None
) -> History:
    """Gather the last `counts[b]` events of each row, padded to the longest row (at least 1: no empty axes).

    Args:
        events: events of all users.
        spans: the events of each row.
        counts: int64 [B], number of events that are kept.
        time_scale: int64 [U], from `personal_time_scale`.
        features: codes of the features of the events; None: they have none.
    """
    width = max(int(counts.max()), 1)
    first = spans.ends - counts
    # Padding repeats the last value of a row: right for times (a gap of 0), but items are padded with 0.
    items = gather(events.items, first, counts, width) * (np.arange(width) < counts[:, None])
    times = gather(events.times, first, counts, width)
    scale = np.where(spans.users >= 0, time_scale[spans.users], 1)
    history = History(to_tensor(items), to_tensor(times), to_tensor(counts), to_tensor(scale))
    if features is None:
        return history
    codes, numbers = features.gather(first, counts, width)
    return history._replace(event_codes=to_tensor(codes), event_numbers=torch.from_numpy(numbers))


def times_at(events: Events, indices: Integers, real: NDArray[np.bool_]) -> Tensor:
    """Return the times of events [B], 0 where `real` is false: int64 [B]."""
    return to_tensor(gather(events.times, indices, real.astype(np.int64), 1)[:, 0])


def to_tensor(array: Integers) -> Tensor:
    """Convert an array of any shape to an int64 tensor."""
    return torch.from_numpy(np.ascontiguousarray(array, np.int64))

"""From a draw of the sampler to a batch: the rows of many users gathered at once, without a Python loop over them.

Whatever is random in a batch (the negatives) is a hash of what it is for, so a sample looks the same in whichever
batch, process or epoch position it comes up.
"""

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from datamodules.recommender.batch import History, RankingBatch, TrainBatch
from datamodules.recommender.damage import require_sound
from engine.randomness import Coordinate, hash_integers
from engine.sampling import Draw

_NEGATIVES = 3  # this stream's name beside those of the sampler, which hashes the same seed

Integers = NDArray[np.integer]


class Events(Protocol):
    """All users' events, user after user, each oldest first. The memory-mapped store is one such; so is EventArrays."""

    @property
    def offsets(self) -> Integers:
        """int64 [U + 1]: the events of user u are ``offsets[u]:offsets[u + 1]``."""

    @property
    def items(self) -> Integers:
        """[N], 1 to ``num_items``."""

    @property
    def times(self) -> Integers:
        """int64 [N], seconds, not decreasing within a user."""

    @property
    def num_items(self) -> int:
        """Items that exist, whether or not anyone has them."""


class EventArrays(NamedTuple):
    """Events that are simply in memory."""

    offsets: NDArray[np.int64]
    items: NDArray[np.int32]
    times: NDArray[np.int64]
    num_items: int


class TrainSequences(Dataset[TrainBatch]):
    """One training row per example: the events ``offsets[user]:end``, each predicting the next, cut to the last ones.

    Args:
        examples: (users [M], ends [M]); a row needs two events at least.
        max_length: positions in a row at most; the last ones are kept.
        time_scale: int64 [U], from :func:`personal_time_scale`.
        num_negatives: K negatives for each position, or for each row if ``shared_negatives``. They are uniform over
            the items that the row's events (all of them, not only the last ``max_length``) do not hold, and a pure
            function of (seed, epoch, sample, position in the user's history, k).
    """

    def __init__(
        self,
        events: Events,
        examples: tuple[Integers, Integers],
        *,
        max_length: int,
        time_scale: Integers,
        seed: int,
        num_negatives: int = 0,
        shared_negatives: bool = False,
    ) -> None:
        self.events, (self.users, self.ends) = events, examples
        self.max_length, self.time_scale, self.seed = max_length, time_scale, seed
        self.num_negatives, self.shared_negatives = num_negatives, shared_negatives
        short = np.flatnonzero(self.ends - events.offsets[self.users] < 2)
        if len(short):
            raise ValueError(
                f"training example {short[0]} (user row {self.users[short[0]]}) and {len(short) - 1} others have fewer "
                "than 2 events, so nothing follows anything: leave such users out of the training split"
            )

    def __len__(self) -> int:
        return len(self.users)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """int64 [M]: positions of each row."""
        return np.minimum(self.ends - self.events.offsets[self.users] - 1, self.max_length)

    def __getitem__(self, draw: Draw) -> TrainBatch:
        rows = _rows(self.events, self.users, self.ends, draw)
        require_sound(self.events, *rows, draw.indices)
        inputs = rows._replace(ends=np.maximum(rows.ends - 1, rows.starts))
        counts = np.minimum(inputs.ends - inputs.starts, self.max_length)
        history = _history(self.events, inputs, counts, self.time_scale)
        real = np.arange(history.items.shape[1]) < counts[:, None]
        first = inputs.ends - counts
        targets = gather(self.events.items, first + 1, counts, real.shape[1]) * real
        negatives = self._negatives(draw, rows, first - rows.starts, real)
        return TrainBatch(history, _tensor(targets), _tensor(negatives), _tensor(rows.users))

    def _negatives(self, draw: Draw, rows: "_Rows", first: Integers, real: NDArray[np.bool_]) -> NDArray[np.int64]:
        if self.num_negatives == 0:
            return np.zeros((len(real), 1, 0), np.int64)
        if self.shared_negatives:
            positions, real = np.zeros((1, 1, 1), np.int64), real[:, :1]
        else:
            # Counted in the user's history, not in the batch: neither padding nor max_length changes a draw.
            positions = (first[:, None] + np.arange(real.shape[1]))[..., None]
        samples, ks = draw.indices[:, None, None], np.arange(self.num_negatives)
        where = (self.seed, draw.epoch, _NEGATIVES, samples, positions, ks)
        return absent_items(self.events, rows.starts, rows.ends, *where) * real[..., None]


class RankingExamples(Dataset[RankingBatch]):
    """Histories ``offsets[user]:end`` of which the event at ``end`` is to be ranked.

    Args:
        examples: (users [M], ends [M]).
        max_length: events of a history at most; the last ones are kept. ``seen`` holds all.
        time_scale: int64 [U], from :func:`personal_time_scale`.
        candidates: [U, 100] from ``candidates.py``, or None without the `sampled_100` protocol.
        held_out: False for prediction: a history ends where the user's events end, and there is no target.
    """

    def __init__(
        self,
        events: Events,
        examples: tuple[Integers, Integers],
        *,
        max_length: int,
        time_scale: Integers,
        candidates: Integers | None = None,
        held_out: bool = True,
    ) -> None:
        self.events, (self.users, self.ends) = events, examples
        self.max_length, self.time_scale = max_length, time_scale
        self.candidates, self.held_out = candidates, held_out
        beyond = np.flatnonzero(self.ends >= events.offsets[self.users + 1]) if held_out else ()
        if len(beyond):
            raise ValueError(
                f"ranking example {beyond[0]} (user row {self.users[beyond[0]]}) ends with its user: no target"
            )
        if candidates is not None and len(candidates) != len(events.offsets) - 1:
            raise ValueError(
                f"{len(candidates)} candidate lists for {len(events.offsets) - 1} users: of another data set?"
            )

    def __len__(self) -> int:
        return len(self.users)

    def __getitem__(self, draw: Draw) -> RankingBatch:
        rows = _rows(self.events, self.users, self.ends, draw)
        known, real = rows.ends - rows.starts, rows.users >= 0
        # Of an example that has a target it is the event at its end.
        require_sound(self.events, rows.users, rows.starts, rows.ends + (real & self.held_out), draw.indices)
        history = _history(self.events, rows, np.minimum(known, self.max_length), self.time_scale)
        width = max(int(known.max()), 1)
        seen = gather(self.events.items, rows.starts, known, width) * (np.arange(width) < known[:, None])
        target = gather(self.events.items, rows.ends, (real & self.held_out).astype(np.int64), 1)
        # Whoever comes back to an item is still to be predicted.
        seen[seen == target] = 0
        candidates = np.zeros((len(real), 0), np.int64)
        if self.candidates is not None:
            candidates = np.where(real[:, None], self.candidates[rows.users], 0).astype(np.int64)
        return RankingBatch(history, _tensor(target[:, 0]), _tensor(seen), _tensor(candidates), _tensor(rows.users))


def personal_time_scale(events: Events, train_end: Integers, chunk: int = 1 << 22) -> NDArray[np.int64]:
    """The smallest non-zero gap between neighbouring events of each user's training part, in seconds; 1 if none.

    TiSASRec (Li, Wang and McAuley, WSDM 2020, section 3.1) divides a user's intervals by it. There it is taken over
    the whole sequence, which tells a little of the test events; here it is not.

    Args:
        train_end: int64 [U], end of each user's training part; ``offsets[u]`` where there is none.
        chunk: events looked at together (memory, not result).

    Returns:
        int64 [U]
    """
    never = np.iinfo(np.int64).max
    scale = np.full(len(events.offsets) - 1, never)
    for first, last in user_chunks(events.offsets, chunk):
        starts, ends = events.offsets[first:last], train_end[first:last]
        low, high = int(starts[0]), int(events.offsets[last])
        if low == high:
            continue
        gaps = np.diff(events.times[low:high], append=events.times[high - 1])
        gaps[gaps <= 0] = never
        leaves = np.repeat(ends, np.diff(events.offsets[first : last + 1])) - 1
        gaps[np.arange(low, high) >= leaves] = never
        filled = np.flatnonzero(np.diff(events.offsets[first : last + 1]))
        scale[first + filled] = np.minimum.reduceat(gaps, starts[filled] - low)
    return np.where(scale == never, 1, scale)


def absent_items(events: Events, starts: Integers, ends: Integers, *coordinates: Coordinate) -> NDArray[np.int64]:
    """Uniform draws over the items that do not occur among the events ``starts[b]:ends[b]``.

    Nothing is drawn in vain: with the row's distinct items in order, ``h_0 < h_1 < ...``, there are ``h_i - 1 - i``
    absent ones before ``h_i``, so the r-th absent item (from 0) is ``r + 1 +`` the number of ``i`` with
    ``h_i - 1 - i <= r``. A row that holds every item draws from all of them.

    Args:
        starts, ends: [B]
        coordinates: of the hash; they broadcast to ``[B, ...]``.

    Returns:
        int64 [B, ...]
    """
    counts, span = ends - starts, events.num_items + 1
    row = np.repeat(np.arange(len(counts)), counts)
    flat = np.arange(len(row)) + np.repeat(starts - (np.cumsum(counts) - counts), counts)
    keys = np.sort(row * span + events.items[flat])
    # Not np.unique: it hashes since numpy 2.3, which takes five times as long here.
    row, held = np.divmod(keys[np.diff(keys, prepend=-1) > 0], span)
    distinct = np.bincount(row, minlength=len(counts))
    begins = np.cumsum(distinct) - distinct
    absent_before = held - 1 - (np.arange(len(row)) - begins[row])

    shape = (-1, *[1] * (np.broadcast(*coordinates).ndim - 1))
    rows, begins, free = (a.reshape(shape) for a in (np.arange(len(counts)), begins, events.num_items - distinct))
    draw = hash_integers(np.where(free > 0, free, events.num_items), *coordinates)
    skipped = np.searchsorted(row * span + absent_before, rows * span + draw, side="right") - begins
    return draw + 1 + np.where(free > 0, skipped, 0)


def gather(values: Integers, starts: Integers, counts: Integers, width: int) -> NDArray[np.int64]:
    """``values[starts[b]:starts[b] + counts[b]]`` as row b: int64 [B, width], a row's last value repeated behind it.

    A row without values is 0.
    """
    rows, filled = np.zeros((len(starts), width), np.int64), counts > 0
    columns = np.minimum(np.arange(width), counts[filled, None] - 1)
    rows[filled] = values[starts[filled, None] + columns]
    return rows


class _Rows(NamedTuple):
    """Where the events of a draw's rows lie; a filler has user -1 and no events."""

    users: NDArray[np.int64]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]


def _rows(events: Events, users: Integers, ends: Integers, draw: Draw) -> _Rows:
    real = draw.indices >= 0
    users = np.where(real, users[draw.indices], -1)
    return _Rows(users, np.where(real, events.offsets[users], 0), np.where(real, ends[draw.indices], 0))


def _history(events: Events, rows: _Rows, counts: Integers, time_scale: Integers) -> History:
    """The last ``counts[b]`` events of each row, padded to the longest (1 at least: networks dislike empty axes)."""
    width = max(int(counts.max()), 1)
    first = rows.ends - counts
    items = gather(events.items, first, counts, width) * (np.arange(width) < counts[:, None])
    times = gather(events.times, first, counts, width)
    scale = np.where(rows.users >= 0, time_scale[rows.users], 1)
    return History(_tensor(items), _tensor(times), _tensor(counts), _tensor(scale))


def user_chunks(offsets: Integers, chunk: int) -> Iterator[tuple[int, int]]:
    """Ranges of users with about ``chunk`` events together, one user at least."""
    first, users = 0, len(offsets) - 1
    while first < users:
        last = int(np.searchsorted(offsets, offsets[first] + chunk, side="right")) - 1
        yield first, (last := min(max(last, first + 1), users))
        first = last


def _tensor(array: Integers) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(array, np.int64))

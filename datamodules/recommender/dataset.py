"""Gathers micro-batches of histories with array operations, without a loop over users.

The random parts of a batch (the negatives) are hashes, so a sample is the same in whichever batch, rank or position of
the epoch it occurs.
"""

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Dataset

from datamodules.recommender.batch import EventEncoding, RankingBatch, SampledItems, TrainBatch
from datamodules.recommender.events import Events, Integers
from datamodules.recommender.features.event_encoding import EncodedEvents
from datamodules.recommender.features.trained_items import TrainedItems
from datamodules.recommender.negatives.negative_mixture import UNIFORM, NegativeMixture, NegativeOptions
from datamodules.recommender.negatives.popularity_negatives import target_counts
from datamodules.recommender.negatives.uniform_negatives import InteractedItems
from datamodules.recommender.stored_event_check import validate_events
from datamodules.recommender.user_histories import HistorySpans, find_spans, gather, gather_history, times_at, to_tensor
from engine.data.samplers import MicroBatchRequest
from engine.determinism.stateless_rng import hash_integers

_WINDOWS = 13  # hash key of the windows; the samplers use other keys with the same seed
_BATCH_TARGETS = 15  # hash key of the targets of a global batch that are its negatives

Windows = Literal["last", "random"]
"""Which events of a history with more than `max_length` positions a training row has."""


class TrainDataset(Dataset[TrainBatch]):
    """Training rows: the events `offsets[user]:end`, each of which predicts the next event, cut to a window.

    Args:
        events: events of all users.
        examples: (users [M], ends [M]); a row needs at least two events.
        max_length: maximum number of positions of a row.
        time_scale: int64 [U], from `personal_time_scale`.
        seed: seed of the windows and negatives.
        windows: which positions of a longer history are kept: the `last` positions, or a `random` window, which is
            a pure function of (seed, epoch, sample). Of n positions each is then in the window of an epoch with a
            probability of at least `max_length / (n + max_length - 1)`.
        negatives: negatives per position, or per row if they are shared. They are drawn among the items that do not
            occur in the row (in all its events, not only the last `max_length`), and a pure function of (seed, epoch,
            sample, position in the user's history, k). The negatives of a global batch are a function of (seed, epoch,
            number of the batch).
        negatives_among: the only items that are drawn, a superset of the items of all rows; None: all items.
        features: encoding of the features of events, which inputs have and targets have not; None: no features.

    Raises:
        ValueError: a row has fewer than two events.
    """

    def __init__(
        self,
        events: Events,
        examples: tuple[Integers, Integers],
        *,
        max_length: int,
        time_scale: Integers,
        seed: int,
        windows: Windows = "last",
        negatives: NegativeOptions = UNIFORM,
        negatives_among: TrainedItems | None = None,
        features: EventEncoding | None = None,
    ) -> None:
        self.events, (self.users, self.ends) = events, examples
        self.max_length, self.time_scale, self.seed = max_length, time_scale, seed
        self.windows = windows
        self.negatives_among = negatives_among
        self.features = None if features is None else EncodedEvents(features, events)
        short = np.flatnonzero(self.ends - events.offsets[self.users] < 2)
        if len(short):
            raise ValueError(
                f"training example {short[0]} (user row {self.users[short[0]]}) and {len(short) - 1} others have fewer "
                "than 2 events, so there is no next item to predict: exclude these users from the training split"
            )
        # Counts are needed by popularity and corrections alone; counting reads all training events.
        counts = np.zeros(1, np.int64)
        if not negatives.is_uniform:
            counts = target_counts(events, self.users, self.ends, max_length if windows == "last" else None)
        self.mixture = NegativeMixture(negatives, counts, seed)

    def __len__(self) -> int:
        return len(self.users)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """int64 [M]: number of positions of each row."""
        return np.minimum(self.ends - self.events.offsets[self.users] - 1, self.max_length)

    def __getitem__(self, request: MicroBatchRequest) -> TrainBatch:
        spans = find_spans(self.events, self.users, self.ends, request)
        validate_events(self.events, *spans, request.indices)
        inputs, counts = self._windows(request, spans)
        history = gather_history(self.events, inputs, counts, self.time_scale, self.features)
        # The event at inputs.ends is the last target: `request_time` is its time.
        history = history._replace(request_time=times_at(self.events, inputs.ends, spans.users >= 0))
        real = np.arange(history.items.shape[1]) < counts[:, None]
        first = inputs.ends - counts
        targets = gather(self.events.items, first + 1, counts, real.shape[1]) * real
        negatives, sampled = self._negatives(request, spans, first - spans.starts, targets)
        return TrainBatch(history, to_tensor(targets), to_tensor(negatives), to_tensor(spans.users), sampled)

    def _windows(self, request: MicroBatchRequest, spans: HistorySpans) -> tuple[HistorySpans, NDArray[np.int64]]:
        """Return the inputs of each row, and the number of inputs that fit `max_length`, at their end."""
        # The last event of a row is only a target. A padding row has ends 0, and the maximum keeps its length at 0.
        inputs = spans._replace(ends=np.maximum(spans.ends - 1, spans.starts))
        if self.windows == "random":
            inputs = inputs._replace(ends=inputs.ends - self._positions_after(request, inputs))
        return inputs, np.minimum(inputs.ends - inputs.starts, self.max_length)

    def _positions_after(self, request: MicroBatchRequest, inputs: HistorySpans) -> NDArray[np.int64]:
        """Draw the number of positions after each row's window, int64 [B]; 0 unless a row has more than `max_length`.

        A draw beyond the history is clipped to the window at this end, so that its positions are as likely as others.
        """
        longer = np.maximum(inputs.ends - inputs.starts - self.max_length, 0)
        bound = longer + 2 * self.max_length - 1
        drawn = hash_integers(bound, self.seed, request.epoch, _WINDOWS, request.indices) - (self.max_length - 1)
        return np.clip(drawn, 0, longer)

    def _negatives(
        self, request: MicroBatchRequest, spans: HistorySpans, first: Integers, targets: Integers
    ) -> tuple[NDArray[np.int64], SampledItems | None]:
        options, real = self.mixture.options, targets > 0
        if options.number == 0 and options.is_uniform:
            return np.zeros((len(targets), 1, 0), np.int64), None
        interacted = InteractedItems(self.events, spans.starts, spans.ends, self.negatives_among)
        if options.shared:
            # Every row with samples has a first position, so it masks the padding rows.
            positions, real = np.zeros((1, 1, 1), np.int64), real[:, :1]
        else:
            # Positions are counted in the user's history, so neither padding nor max_length changes a draw.
            positions = (first[:, None] + np.arange(real.shape[1]))[..., None]
        negatives = self.mixture.draw(interacted, request.epoch, request.indices[:, None, None], positions)
        negatives = negatives * real[:, : negatives.shape[1], None]
        if options.is_uniform:
            return negatives, None
        return negatives, self.mixture.corrections(interacted, targets, negatives, self._batch_targets(request))

    def _batch_targets(self, request: MicroBatchRequest) -> NDArray[np.int64]:
        """Return M targets of the global batch that the request is a part of, int64 [M]; 0 for corrupt items.

        They are a systematic sample of its N targets: offsets `(k N + r) // M` with a random r below N. So each
        target is expected M / N times, and none is taken twice if there are M.
        """
        # All micro-batches and ranks must get the same targets, so draw from the whole batch and not from this request.
        batch, number = request.whole_batch, self.mixture.options.batch_targets
        batch_request = request._replace(indices=request.indices if batch is None else batch)
        inputs, counts = self._windows(batch_request, find_spans(self.events, self.users, self.ends, batch_request))
        ends = np.cumsum(counts)
        if not number or not ends[-1]:
            return np.zeros(number, np.int64)
        total = int(ends[-1])
        start = hash_integers(total, self.seed, request.epoch, _BATCH_TARGETS, request.step_in_epoch)
        offsets = (np.arange(number) * total + start) // number
        # Targets are numbered row after row; a row's last target is the event at inputs.ends.
        row = np.searchsorted(ends, offsets, side="right")
        items = self.events.items[inputs.ends[row] + 1 - (ends[row] - offsets)].astype(np.int64)
        return np.where((items > 0) & (items <= self.events.num_items), items, 0)


class RankingDataset(Dataset[RankingBatch]):
    """Histories `offsets[user]:end`, of which the event at `end` is ranked.

    Args:
        events: events of all users.
        examples: (users [M], ends [M]).
        max_length: maximum number of events of a history; the last events are kept. `seen` has all of them.
        time_scale: int64 [U], from `personal_time_scale`.
        candidates: [U, 100] from `sampled_candidates.py`, or None without the `sampled_100` protocol.
        held_out: False for prediction: a history ends where the user's events end, and there is no target.
        request_times: int64 [U], time of the request of each user without a target, or None if it is unknown. With a
            target it is the target's time.
        features: encoding of the features of events, which a history has and its target has not; None: no features.

    Raises:
        ValueError: an example has no target, or the candidates belong to another data set.
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
        request_times: Integers | None = None,
        features: EventEncoding | None = None,
    ) -> None:
        self.events, (self.users, self.ends) = events, examples
        self.max_length, self.time_scale = max_length, time_scale
        self.candidates, self.held_out, self.request_times = candidates, held_out, request_times
        self.features = None if features is None else EncodedEvents(features, events)
        if held_out:
            beyond = np.flatnonzero(self.ends >= events.offsets[self.users + 1])
            if len(beyond):
                raise ValueError(
                    f"ranking example {beyond[0]} (user row {self.users[beyond[0]]}) has no event after it: no target"
                )
        if candidates is not None and len(candidates) != len(events.offsets) - 1:
            raise ValueError(
                f"{len(candidates)} candidate lists for {len(events.offsets) - 1} users: made from other data?"
            )

    def __len__(self) -> int:
        return len(self.users)

    def held_out_of(self, users: Integers) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the number of events of each user's history, and the held-out item: int64 [n] each.

        Args:
            users: [n] rows of users of this data set.
        """
        ends = np.zeros(len(self.events.offsets) - 1, np.int64)
        ends[self.users] = self.ends
        return ends[users] - self.events.offsets[users], self.events.items[ends[users]].astype(np.int64)

    def __getitem__(self, request: MicroBatchRequest) -> RankingBatch:
        spans = find_spans(self.events, self.users, self.ends, request)
        lengths, real = spans.ends - spans.starts, spans.users >= 0
        # The target is the event at the end of an example.
        validate_events(self.events, spans.users, spans.starts, spans.ends + (real & self.held_out), request.indices)
        history = gather_history(
            self.events, spans, np.minimum(lengths, self.max_length), self.time_scale, self.features
        )
        if self.held_out:
            history = history._replace(request_time=times_at(self.events, spans.ends, real))
        elif self.request_times is not None:
            history = history._replace(request_time=to_tensor(np.where(real, self.request_times[spans.users], 0)))
        width = max(int(lengths.max()), 1)
        seen = gather(self.events.items, spans.starts, lengths, width) * (np.arange(width) < lengths[:, None])
        target = gather(self.events.items, spans.ends, (real & self.held_out).astype(np.int64), 1)
        # A target that the user has seen before must still be ranked.
        seen[seen == target] = 0
        candidates = np.zeros((len(real), 0), np.int64)
        if self.candidates is not None:
            candidates = np.where(real[:, None], self.candidates[spans.users], 0).astype(np.int64)
        return RankingBatch(
            history, to_tensor(target[:, 0]), to_tensor(seen), to_tensor(candidates), to_tensor(spans.users)
        )

"""Defines batches of the recommender family, shared by the data side and the model side.

Item ids run from 1 to `num_items`; 0 is padding. Rows are padded on the *right* (oldest event first), so the causal
mask hides the padding from every real position, and attention needs no other mask. Positions are counted from the end
of a row, as in the SASRec papers: event `j` of a row with `n` events has position `max_length - n + j`. A row
without events (`lengths == 0`) is padding that gives all ranks the same number of rows; it has zero weight.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor


class History(NamedTuple):
    """Events of B users, oldest first, padded on the right to the longest row L of the batch."""

    items: Tensor  # [B, L] int64, 0 where padded
    times: Tensor  # [B, L] int64, seconds; padding repeats the last time of the row (0 in a padding row)
    lengths: Tensor  # [B] int64, number of real events
    time_scale: Tensor  # [B] int64, seconds; smallest non-zero gap of the whole history (not only L events), 1 if none
    request_time: Tensor | None = None  # [B] int64, seconds; time of the target, or of a request without a target
    event_codes: Tensor | None = None  # [B, L, K] int64, categories of the events from 1; 0 where unknown or padded
    event_numbers: Tensor | None = None  # [B, L, M] float32, standardized numbers; NaN where missing or padded


class SampledItems(NamedTuple):
    """Negatives that all positions share, and what sampled softmax subtracts from the scores: log E (logQ correction).

    E is how often an item is expected among the negatives of a row, see negatives/negative_mixture.py.
    """

    batch_negatives: Tensor  # [M] int64, targets of the global batch, the same in all its micro-batches; 0 for none
    log_targets: Tensor  # [B, L] float32; 0 where padded, or without correction
    log_negatives: Tensor  # [B, L or 1, K] float32, likewise
    log_batch_negatives: Tensor  # [B, M] float32, likewise; infinite where the row has the item


class TrainBatch(NamedTuple):
    """Sequences with the next item of every position."""

    history: History
    targets: Tensor  # [B, L] int64, the item that follows each position; 0 where padded
    negatives: Tensor  # int64: [B, L, K] (per position), [B, 1, K] (shared along the row) or [B, 1, 0] (none)
    users: Tensor  # [B] int64, row of the user in the store; -1 for a padding row
    sampled: SampledItems | None = None  # None if all negatives are uniform


class RankingBatch(NamedTuple):
    """Histories with one held-out item each, which is ranked among all items or among given candidates."""

    history: History
    target: Tensor  # [B] int64, the held-out item; 0 if there is none (padding rows, prediction)
    seen: Tensor  # [B, S] int64, all items of the user's history (not only the last L events), 0 where padded
    candidates: Tensor  # [B, 100] int64, fixed negatives of the `sampled_100` protocol, or [B, 0]
    users: Tensor  # [B] int64, row of the user in the store or of the history in the input file; -1 for padding


class Catalog(NamedTuple):
    """Items of a data set, and the maximum length of a row."""

    num_items: int
    max_length: int  # maximum number of events in a row
    item_ids: Sequence[str]  # original id of item i at index i - 1
    titles: Sequence[str] | None  # title of item i at index i - 1; None if the data set has no titles

    def title(self, item: int) -> str:
        """Return the title of an item (from 1), or its original id if it has none."""
        names = self.item_ids if self.titles is None else self.titles
        return str(names[item - 1] or self.item_ids[item - 1])


class ItemFeatureArrays(NamedTuple):
    """Encoded features of item 0 (padding, which has none), of the items 1 to V of the data, and of further items.

    The further items have a row in the table of features and occur in no interaction.
    """

    codes: NDArray[np.int32]  # [N + 1, slots] categories, from 1; 0 in an empty slot
    shares: NDArray[np.float32]  # [N + 1, slots] weight of each; 0 in an empty slot
    dense: NDArray[np.float32]  # [N + 1, D] standardized numbers and the components of the vector
    known: NDArray[np.bool_]  # [codes] whether a training item has a code
    trained: NDArray[np.bool_]  # [N + 1] whether an item occurs in the training


class FeaturesIdentity(NamedTuple):
    """What a network with features depends on."""

    columns: str  # kinds and names of the columns
    sha256: str  # of the features of the data's items and which are trained; of events, vocabularies and statistics


LARGEST_NUMBER = 5.0
"""Limit of a standardized number of an event; the numbers of items have the same limit."""


class NumberStatistics(NamedTuple):
    """How a number of events is standardized: (x - mean) / deviation, limited to `LARGEST_NUMBER`."""

    mean: float
    deviation: float  # above 0


class EventEncoding(NamedTuple):
    """Features of events: vocabularies and statistics of the training events, by the names of the columns."""

    categories: Mapping[str, Sequence[str]]  # the category with code c is at c - 1; code 0 is unknown
    numbers: Mapping[str, NumberStatistics]


class TrainingEvents(NamedTuple):
    """Training part of every user: user u trains on `items[offsets[u]:train_end[u]]`."""

    offsets: NDArray[np.integer]  # [U + 1]
    items: NDArray[np.integer]  # [N] all events
    train_end: NDArray[np.integer]  # [U]


class EvaluatedUsers(NamedTuple):
    """Users of an evaluation and what is held out of each."""

    ids: Sequence[str]  # [U] original ids
    history: NDArray[np.integer]  # [U] number of events of the history, not only of the last `max_length`
    targets: NDArray[np.integer]  # [U] held-out items, from 1


Scorer = Callable[[History], Tensor]
"""Function that returns scores [B, num_items + 1] for histories; column j is item j, column 0 is ignored."""

"""What a recommender batch is: the one thing that the data side and the model side share.

Item ids run from 1 to ``num_items``; 0 is padding. Rows are padded on the *right* (oldest event first), so a causal
mask alone hides the padding from every real position, and attention needs no other mask. Positions are nevertheless
counted from the end of a row, as in the SASRec papers: event ``j`` of a row with ``n`` events has position
``max_length - n + j``. A row without events (``lengths == 0``) is a filler that keeps processes in step and
weighs nothing.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor


class History(NamedTuple):
    """Events of B users, oldest first, padded on the right to the longest row L of the batch."""

    items: Tensor  # [B, L] int64, 0 where padded
    times: Tensor  # [B, L] int64, seconds; padding repeats the row's last time (0 in a filler row)
    lengths: Tensor  # [B] int64, number of real events
    time_scale: Tensor  # [B] int64, seconds; smallest non-zero gap in the user's training part, 1 if none


class TrainBatch(NamedTuple):
    """Sequences with the next item of every position."""

    history: History
    targets: Tensor  # [B, L] int64, the item that follows each position; 0 where padded
    negatives: Tensor  # [B, L, K] (own for each position), [B, 1, K] (shared along the row) or [B, 1, 0] (none) int64
    users: Tensor  # [B] int64, row of the user in the store; -1 for a filler row


class RankingBatch(NamedTuple):
    """Histories with one held-out item each, to be ranked among all items or among given candidates."""

    history: History
    target: Tensor  # [B] int64, the held-out item; 0 where there is none (filler rows, prediction)
    seen: Tensor  # [B, S] int64, all items of the user's history (not only the last L events), 0 where padded
    candidates: Tensor  # [B, 100] int64, fixed negatives of the `sampled_100` protocol, or [B, 0]
    users: Tensor  # [B] int64, row of the user in the store or of the history in the input file; -1 for a filler row


class Catalog(NamedTuple):
    """What a recommender must know of its data set besides the batches."""

    num_items: int
    max_length: int  # most events in a row
    item_ids: Sequence[str]  # original id of item i at i - 1
    titles: Sequence[str] | None  # title of item i at i - 1, where the data set has them

    def title(self, item: int) -> str:
        """What a reader knows the item by, from 1 on: its title, else its original id."""
        names = self.item_ids if self.titles is None else self.titles
        return str(names[item - 1] or self.item_ids[item - 1])


class TrainingEvents(NamedTuple):
    """The training part of every user, for whoever counts: user u trains on ``items[offsets[u]:train_end[u]]``."""

    offsets: NDArray[np.integer]  # [U + 1]
    items: NDArray[np.integer]  # [N] all events
    train_end: NDArray[np.integer]  # [U]


Scorer = Callable[[History], Tensor]
"""Scores [B, num_items + 1] for histories; column j is item j, column 0 is ignored."""

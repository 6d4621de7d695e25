"""Little work on padding, without changing what is in a batch: its rows are computed in groups of similar length.

On ML-1M cut to 200 events, 54 % of the positions of a batch of 128 are real, as nearly every batch holds a long row; in
8 groups it is 91 %. A batch remains a fair draw of all rows, with which training gets ahead faster than with batches
that are all short or all long (docs/results.md).
"""

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Dataset

from datamodules.recommender.batch import TrainBatch
from datamodules.recommender.sequences import TrainSequences
from engine.sampling import Draw


class LengthGroups(Dataset[tuple[TrainBatch, ...]]):
    """A batch of training rows as up to ``groups`` batches, from the shortest rows to the longest."""

    def __init__(self, rows: TrainSequences, groups: int) -> None:
        if groups < 1:
            raise ValueError(f"data.init_args.length_groups must be at least 1, got {groups}")
        self.rows, self.groups, self.lengths = rows, groups, rows.lengths

    @property
    def work(self) -> NDArray[np.int64]:
        """int64 [M]: what a row costs, which is its length; so the processes of a run have equal shares of a batch."""
        return self.lengths

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, draw: Draw) -> tuple[TrainBatch, ...]:
        lengths = np.where(draw.indices >= 0, self.lengths[draw.indices], 0)
        ordered = draw.indices[np.argsort(lengths, kind="stable")]
        parts = np.array_split(ordered, min(self.groups, len(ordered)))
        return tuple(self.rows[Draw(draw.epoch, part)] for part in parts)

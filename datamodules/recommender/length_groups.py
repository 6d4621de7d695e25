"""Groups rows of a batch by length, which reduces padding without changing the batch.

On ML-1M with at most 200 events, 54 % of the positions of a batch of 128 are real, because nearly every batch has a
long row; with 8 groups it is 91 %. The batch remains a uniform sample of all rows, with which training converges faster
than with batches of rows of equal length (docs/measurements/recommender.md).
"""

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Dataset

from datamodules.recommender.batch import TrainBatch
from datamodules.recommender.dataset import TrainDataset
from engine.data.samplers import MicroBatchRequest
from engine.number_check import check_number


class LengthGroups(Dataset[tuple[TrainBatch, ...]]):
    """Splits a batch of training rows into up to `groups` batches, from the shortest rows to the longest.

    Args:
        rows: the training rows.
        groups: maximum number of groups.

    Raises:
        ValueError: `groups` is below 1.
    """

    def __init__(self, rows: TrainDataset, groups: int) -> None:
        check_number("data.init_args.length_groups", groups, at_least=1)
        self.rows, self.groups, self.lengths = rows, groups, rows.lengths

    @property
    def sample_costs(self) -> NDArray[np.int64]:
        """int64 [M]: cost of each row, which is its length; the sampler balances it over the ranks."""
        return self.lengths

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, request: MicroBatchRequest) -> tuple[TrainBatch, ...]:
        lengths = np.where(request.indices >= 0, self.lengths[request.indices], 0)
        # Padding rows have length 0 and come first. Rows of equal length stay in the order of the batch.
        ordered = request.indices[np.argsort(lengths, kind="stable")]
        # With more groups than rows, array_split would return empty parts.
        parts = np.array_split(ordered, min(self.groups, len(ordered)))
        return tuple(self.rows[request._replace(indices=part)] for part in parts)

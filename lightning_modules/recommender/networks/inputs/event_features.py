"""Encodes features of events: categories, such as a device, and numbers, such as a rating.

The vector of an event is added to its item's vector, where the event is an input. A target has no features, so its own
cannot decide its score.
"""

from collections.abc import Sequence
from typing import TypedDict

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from typing_extensions import override


class EventFeatureSizes(TypedDict):
    """Sizes of the features of events."""

    categories: Sequence[int]  # number of categories of each column, unknown apart
    numbers: int  # number of columns of numbers


class EventFeatureEncoder(nn.Module):
    """Sum of the vectors of an event's categories, and of a linear map of its numbers.

    An unknown category and a missing number have a vector, too. All weights start at zero: at the start a model with
    features is the model without, and what the training never meets adds nothing.

    Args:
        sizes: categories of each of K columns, and number M of columns of numbers.
        hidden_size: width C of the vectors.
    """

    firsts: Tensor  # [K] int64, row of the unknown category of each column

    def __init__(self, sizes: EventFeatureSizes, hidden_size: int) -> None:
        super().__init__()
        # All columns share one table. A column begins with its unknown category, so code 0 needs no case of its own.
        rows = torch.tensor([size + 1 for size in sizes["categories"]], dtype=torch.int64)
        self.register_buffer("firsts", rows.cumsum(0) - rows, persistent=False)
        # nn.Embedding would draw random weights first, and all later weights of the encoder would be others.
        self.categories = nn.Parameter(torch.zeros(int(rows.sum()), hidden_size)) if len(rows) else None
        self.numbers = nn.Parameter(torch.zeros(sizes["numbers"], hidden_size)) if sizes["numbers"] else None
        self.missing = nn.Parameter(torch.zeros(sizes["numbers"], hidden_size)) if sizes["numbers"] else None

    @override
    def forward(self, codes: Tensor, numbers: Tensor) -> Tensor:
        """Return the vectors of events, [B, L, C] float32.

        Args:
            codes: [B, L, K] int64, categories from 1; 0 where unknown.
            numbers: [B, L, M] standardized numbers, NaN where missing.
        """
        parts = []
        with torch.autocast(codes.device.type, enabled=False):
            if self.categories is not None:
                parts.append(F.embedding(codes + self.firsts, self.categories.float()).sum(2))
            if self.numbers is not None and self.missing is not None:
                # NaN times a zero weight is NaN, so missing numbers are replaced before the product.
                unknown = numbers.isnan()
                parts.append(torch.where(unknown, 0.0, numbers).float() @ self.numbers.float())
                parts.append(unknown.float() @ self.missing.float())
        return torch.stack(parts).sum(0)

"""Batches for the recommender: rows without padding, as the longest of an epoch are."""

from typing import NamedTuple

import torch

from datamodules.recommender.batch import History, TrainBatch


class Sizes(NamedTuple):
    """Of a batch and of the network that reads it."""

    batch: int
    length: int
    hidden_size: int
    time_span: int
    num_items: int


REALISTIC = Sizes(128, 200, 64, 256, 3416)  # ML-1M's items, and the papers' settings
TINY = Sizes(3, 12, 8, 16, 50)


def full_batch(sizes: Sizes, device: str) -> TrainBatch:
    """Every position has a real event; days to weeks lie between two of them, and minutes where a user goes on."""
    draws = torch.Generator().manual_seed(1)
    shape = sizes.batch, sizes.length
    items = torch.randint(1, sizes.num_items + 1, (sizes.batch, sizes.length + 1), generator=draws)
    gaps = (torch.empty(shape).exponential_(1.0, generator=draws) ** 4 * 3600).long() + 60
    history = History(
        items[:, :-1], gaps.cumsum(1), torch.full((sizes.batch,), sizes.length), gaps.amin(1)
    )
    batch = TrainBatch(
        history, items[:, 1:], torch.empty((sizes.batch, 1, 0), dtype=torch.int64), torch.arange(sizes.batch)
    )
    placed = History(*(part.to(device) for part in history))
    return TrainBatch(placed, *(part.to(device) for part in batch[1:]))

"""Builds batches for the recommender: rows without padding, like the longest rows of an epoch."""

from typing import NamedTuple

import torch

from datamodules.recommender.batch import History, TrainBatch


class Sizes(NamedTuple):
    """Sizes of a batch and of its network."""

    batch: int
    length: int
    hidden_size: int
    time_span: int
    num_items: int


REALISTIC = Sizes(128, 200, 64, 256, 3416)  # number of items of ML-1M, and the papers' settings
TINY = Sizes(3, 12, 8, 16, 50)


def full_batch(sizes: Sizes, device: str) -> TrainBatch:
    """Return a batch in which every position has an event. Gaps are days to weeks, or minutes within a session."""
    draws = torch.Generator().manual_seed(1)
    shape = sizes.batch, sizes.length
    items = torch.randint(1, sizes.num_items + 1, (sizes.batch, sizes.length + 1), generator=draws)
    # The fourth power of an exponential number: most gaps are short, a few very long.
    gaps = (torch.empty(shape).exponential_(1.0, generator=draws) ** 4 * 3600).long() + 60
    history = History(items[:, :-1], gaps.cumsum(1), torch.full((sizes.batch,), sizes.length), gaps.amin(1))
    placed = History(*(part.to(device) for part in history[:4]))
    negatives = torch.empty((sizes.batch, 1, 0), dtype=torch.int64, device=device)
    return TrainBatch(placed, items[:, 1:].to(device), negatives, torch.arange(sizes.batch, device=device))

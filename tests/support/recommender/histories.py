"""Interactions and histories for baselines without a network."""

import numpy as np
import torch
from hypothesis import strategies as st

from datamodules.recommender.batch import History

NUM_ITEMS = 6


def history_of(rows):
    lengths = torch.tensor([len(row) for row in rows])
    items = torch.zeros(len(rows), max(1, int(lengths.max())), dtype=torch.int64)
    for index, row in enumerate(rows):
        items[index, : len(row)] = torch.tensor(row)
    return History(items, torch.zeros_like(items), lengths, torch.ones_like(lengths))


@st.composite
def interactions(draw):
    users = draw(st.lists(st.lists(st.integers(1, NUM_ITEMS), max_size=8), min_size=1, max_size=6).filter(any))
    ends = [draw(st.integers(0, len(user))) for user in users]
    offsets = np.concatenate([[0], np.cumsum([len(user) for user in users])])
    return users, ends, offsets, np.array([item for user in users for item in user], np.int32), offsets[:-1] + ends

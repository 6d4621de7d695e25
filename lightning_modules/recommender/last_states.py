"""What ranking needs of a history: the state at its last event, without the work that goes into all others' states."""

import torch
from torch import Tensor

from datamodules.recommender.batch import History
from lightning_modules.recommender.network import SequenceEncoder

_GROUPS = 8
_PLACES = 1024
"""Of a batch, padding included, that are worth a group: a pass takes time of its own, as much as some 200 places."""


def last_states(encoder: SequenceEncoder, history: History) -> Tensor:
    """[B, C]: the state at each row's last event; of a row without events it is finite and means nothing.

    On a CPU, where padding costs time, rows are computed in groups of similar length, as many as the batch is worth:
    a small one is a single pass. Elsewhere a pass costs more than the padding that it would save, and processes that
    share the weights, which gather them in each pass, make as many passes (sharding is for GPUs alone).
    """
    batch_size, length = history.items.shape
    groups = min(_GROUPS, batch_size, batch_size * length // _PLACES) if history.items.device.type == "cpu" else 1
    if groups <= 1:
        return encoder(history, last_only=True)[:, 0]
    order = history.lengths.argsort()
    states = []
    for rows in order.tensor_split(groups):
        longest = max(int(history.lengths[rows[-1]]), 1)
        part = History(
            history.items[rows, :longest],
            history.times[rows, :longest],
            history.lengths[rows],
            history.time_scale[rows],
        )
        states.append(encoder(part, last_only=True)[:, 0])
    return torch.cat(states)[order.argsort()]

"""What ranking needs of a history: the state at its last event, without the work that goes into all others' states."""

import torch
from torch import Tensor

from datamodules.recommender.batch import History
from lightning_modules.recommender.network import SequenceEncoder

_GROUPS = 8


def last_states(encoder: SequenceEncoder, history: History) -> Tensor:
    """[B, C]: the state at each row's last event; of a row without events it is finite and means nothing.

    On a CPU, where padding costs time, rows are computed in groups of similar length. Elsewhere a pass costs more than
    the padding that it would save.
    """
    groups = _GROUPS if history.items.device.type == "cpu" else 1
    if groups == 1:
        return encoder(history, last_only=True)[:, 0]
    order = history.lengths.argsort()
    states = []
    for rows in order.tensor_split(groups):
        # As many passes for any batch: processes that have shares of the weights gather them in each.
        some = rows if len(rows) else order[:1]
        longest = max(int(history.lengths[some[-1]]), 1)
        part = History(
            history.items[some, :longest],
            history.times[some, :longest],
            history.lengths[some],
            history.time_scale[some],
        )
        states.append(encoder(part, last_only=True)[: len(rows), 0])
    return torch.cat(states)[order.argsort()]

"""Encodes the state at a history's last event, which is all that ranking needs, without the other states."""

from typing import Protocol

import torch
from torch import Tensor

from datamodules.recommender.batch import History

_MAX_GROUPS = 8
_POSITIONS_PER_GROUP = 1024
"""A forward pass has a fixed cost of about 200 positions; a group pays off from about this many, padding included."""


class LastPositionEncoder(Protocol):
    """An encoder that can compute the last states only, such as SequenceEncoder."""

    def __call__(self, history: History, last_only: bool = False) -> Tensor:
        """Return states [B, L, C], or [B, 1, C] with `last_only`."""


def encode_last_position(encoder: LastPositionEncoder, history: History) -> Tensor:
    """Return the state [B, C] at each row's last event. It is finite but meaningless for a row without events.

    On a CPU, padding costs time, so rows of similar length are computed in groups. Elsewhere one pass is faster. Under
    FSDP the whole model is gathered for an evaluation, so ranks may run different numbers of passes.
    """
    batch_size, length = history.items.shape
    on_cpu = history.items.device.type == "cpu"
    groups = min(_MAX_GROUPS, batch_size, batch_size * length // _POSITIONS_PER_GROUP) if on_cpu else 1
    if groups <= 1:
        return encoder(history, last_only=True)[:, 0]
    order = history.lengths.argsort()  # groups of similar length, each padded to its own longest row
    states = []
    for rows in order.tensor_split(groups):
        longest = max(int(history.lengths[rows[-1]]), 1)
        group = History(
            items=history.items[rows, :longest],
            times=history.times[rows, :longest],
            lengths=history.lengths[rows],
            time_scale=history.time_scale[rows],
            request_time=None if history.request_time is None else history.request_time[rows],
            event_codes=None if history.event_codes is None else history.event_codes[rows, :longest],
            event_numbers=None if history.event_numbers is None else history.event_numbers[rows, :longest],
        )
        states.append(encoder(group, last_only=True)[:, 0])
    return torch.cat(states)[order.argsort()]  # back in the order of the rows


def select_position(states: Tensor, last: Tensor) -> Tensor:
    """Select one position of each row: [B, L, ...] and [B] -> [B, 1, ...]."""
    return states[torch.arange(len(last), device=last.device), last].unsqueeze(1)

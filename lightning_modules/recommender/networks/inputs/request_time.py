"""Returns the request time: at each position, the time of the event that is to be predicted.

In serving, the moment of a request is known. A model that reads it knows how long ago the last event was; a model with
a blind clock knows the past alone. Metrics of the two are not comparable.
"""

import torch
from torch import Tensor

from datamodules.recommender.batch import History


def request_times(history: History) -> Tensor:
    """Return the time of the event that follows each position, [B, L] int64 seconds.

    After the last event of a row this is `history.request_time`; padded positions have it, too.

    Raises:
        ValueError: the history has no `request_time`.
    """
    if history.request_time is None:
        raise ValueError("request_time: found a history without `History.request_time`")
    request = history.request_time.unsqueeze(1)
    # Time of the next position; wrong from a row's last event on, where the padding follows.
    following = torch.cat((history.times[:, 1:], request), 1)
    steps = torch.arange(following.shape[1], device=following.device)
    return torch.where(steps < (history.lengths - 1).unsqueeze(1), following, request)

"""Losses of next-item prediction.

All of them take states and return the *sum* over the real positions as a float32 scalar: whoever calls divides by the
count over all processes and micro-batches. Logits and losses are computed in float32 whatever the dtype of states and
weight, under autocast too: next to an exact positive, negatives rounded to half precision would bias the loss.

Shapes: states [B, L, C] (or [N, C]), weight [V, C] whose row ``i - 1`` belongs to item ``i``, targets [B, L] (or [N])
with 0 where there is none, negatives [B, L, K] or, shared along the row, [B, 1, K] (or [N, K]), items from 1 to V, 0 in
padding.
"""

from typing import Literal, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from lightning_modules.recommender.linear_cross_entropy import linear_cross_entropy

LossName = Literal["cross_entropy", "sampled_softmax", "bce", "gbce"]


class Loss(Protocol):
    def __call__(self, states: Tensor, weight: Tensor, targets: Tensor, negatives: Tensor | None = None) -> Tensor: ...


def cross_entropy(states: Tensor, weight: Tensor, targets: Tensor, negatives: Tensor | None = None) -> Tensor:
    """Softmax cross-entropy over all V items; negatives are not used.

    No [N, V] tensor is kept, and padding is left out before any product is computed. A call keeps a gradient of the
    weight's size until the backward pass, so give it all positions of a micro-batch at once.
    """
    real = targets > 0
    return linear_cross_entropy(states[real], weight, targets[real] - 1)


def sampled_softmax(states: Tensor, weight: Tensor, targets: Tensor, negatives: Tensor | None = None) -> Tensor:
    """Softmax cross-entropy of the target against its negatives; a negative that equals the target does not count."""
    positive, negative, real = _logits(states, weight, targets, negatives, "sampled_softmax")
    negative = negative.masked_fill(negatives == targets.unsqueeze(-1), -torch.inf)
    losses = torch.cat((positive.unsqueeze(-1), negative), -1).logsumexp(-1) - positive
    return _sum(losses, real)


def bce(states: Tensor, weight: Tensor, targets: Tensor, negatives: Tensor | None = None) -> Tensor:
    """Binary cross-entropy of the target and its negatives, as in SASRec (Kang and McAuley, ICDM 2018, eq. 11).

    The paper has one negative; of several the mean is taken, so that the two classes weigh the same.
    """
    positive, negative, real = _logits(states, weight, targets, negatives, "bce")
    return _sum(F.softplus(-positive) + F.softplus(negative).mean(-1), real)


def gbce(
    states: Tensor, weight: Tensor, targets: Tensor, negatives: Tensor | None = None, calibration: float = 0.75
) -> Tensor:
    """Generalised binary cross-entropy of gSASRec (Petrov and Macdonald, RecSys 2023, eqs. 7, 8).

    -(log sigmoid(positive)^beta + sum_k log(1 - sigmoid(negative_k))), beta = alpha (t (1 - 1/alpha) + 1/alpha), with
    the sampling rate alpha = K / (V - 1). ``calibration`` is the paper's t: 0 gives the sum of plain binary
    cross-entropies, 1 makes the scores estimates of the softmax's logits.
    """
    if not 0 <= calibration <= 1:
        raise ValueError(f"gbce's calibration t must lie in [0, 1], got {calibration}")
    positive, negative, real = _logits(states, weight, targets, negatives, "gbce")
    alpha = negative.shape[-1] / (weight.shape[0] - 1)
    beta = alpha * (calibration * (1 - 1 / alpha) + 1 / alpha)
    return _sum(beta * F.softplus(-positive) + F.softplus(negative).sum(-1), real)


LOSSES: dict[str, Loss] = {
    "cross_entropy": cross_entropy,
    "sampled_softmax": sampled_softmax,
    "bce": bce,
    "gbce": gbce,
}


def _logits(
    states: Tensor, weight: Tensor, targets: Tensor, negatives: Tensor | None, loss: str
) -> tuple[Tensor, Tensor, Tensor]:
    """Float32 logits of the target [...] and of the negatives [..., K], and which positions are real [...]."""
    if negatives is None or negatives.shape[-1] == 0:
        raise ValueError(f"the loss {loss} needs negatives, and the batch has none: set data's number of negatives")
    with torch.autocast(states.device.type, enabled=False):
        states, weight = states.float(), weight.float()
        positive = (states * F.embedding((targets - 1).clamp_min(0), weight)).sum(-1)
        rows = F.embedding((negatives - 1).clamp_min(0), weight)
        if states.dim() == 3 and negatives.shape[1] == 1:
            negative = states @ rows.squeeze(1).transpose(1, 2)  # shared along the row: never [B, L, K, C]
        else:
            negative = (rows @ states.unsqueeze(-1)).squeeze(-1)
    return positive, negative, targets > 0


def _sum(losses: Tensor, real: Tensor) -> Tensor:
    """Sum over real positions. Selected, not multiplied by zero, so that nothing non-finite comes in from padding."""
    return torch.where(real, losses, 0.0).sum()

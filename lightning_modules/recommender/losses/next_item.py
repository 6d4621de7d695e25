"""Computes the losses of next-item prediction.

Each returns the *sum* over the real positions as a float32 scalar. The caller divides by their number over all ranks
and micro-batches. Logits and losses are computed in float32, also under autocast: half-precision negatives beside an
exact positive would bias the loss.

Shapes: states [B, L, C] or [N, C]; weight [V, C], whose row `i - 1` belongs to item `i`; targets [B, L] or [N],
with 0 for no target; negatives [B, L, K], [B, 1, K] (shared along the row) or [N, K], items from 1 to V, 0 in padding.
Negatives that the whole batch shares are in `sampled`, with the corrections of those that are not uniform.
"""

from collections.abc import Sequence
from functools import partial
from typing import Literal, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from datamodules.recommender.batch import SampledItems, TrainBatch
from lightning_modules.recommender.losses.linear_cross_entropy import linear_cross_entropy

LossName = Literal["cross_entropy", "sampled_softmax", "bce", "gbce"]


class Loss(Protocol):
    """Function that computes a sum of loss terms."""

    def __call__(self, states: Tensor, weight: Tensor, targets: Tensor, negatives: Tensor | None = None) -> Tensor:
        """Return a float32 scalar; see the module's docstring for shapes."""


def cross_entropy(states: Tensor, weight: Tensor, targets: Tensor, negatives: Tensor | None = None) -> Tensor:
    """Return the softmax cross-entropy over all V items; negatives are not used.

    Padding is omitted before any product is computed, and no [N, V] tensor is kept. Each call keeps a gradient of the
    size of the weight until the backward pass, so pass all positions of a micro-batch at once. A compiled graph has
    fixed shapes: it computes and keeps the logits of all positions.
    """
    if torch.compiler.is_compiling():
        return _padded_cross_entropy(states, weight, targets)
    # A mask would be searched three times, each time with a wait for the device: twice here, once in the backward pass.
    real = (targets > 0).nonzero(as_tuple=True)
    return linear_cross_entropy(states[real], weight, targets[real] - 1)


def _padded_cross_entropy(states: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    with torch.autocast(states.device.type, enabled=False):
        logits = states.float() @ weight.float().T
    # Target 0 becomes -1, which is ignored.
    return F.cross_entropy(logits, targets - 1, ignore_index=-1, reduction="sum")


def sampled_softmax(
    states: Tensor,
    weight: Tensor,
    targets: Tensor,
    negatives: Tensor | None = None,
    sampled: SampledItems | None = None,
) -> Tensor:
    """Return the softmax cross-entropy of the target and its negatives, without negatives that equal the target.

    With `sampled`, the scores are corrected by the logarithm of how often an item is expected among the negatives,
    the target's logit included (Bengio and Senecal, 2008; Yi et al., RecSys 2019). Uniform negatives need no
    correction: it would be the same for all items.
    """
    if sampled is None:
        positive, negative, real = _logits(states, weight, targets, negatives, "sampled_softmax")
        assert negatives is not None, "`_logits` raises otherwise"
        # A drawn item may be the target itself, whose score must not count as a negative's.
        negative = negative.masked_fill(negatives == targets.unsqueeze(-1), -torch.inf)
    else:
        positive, negative, real = _sampled_logits(states, weight, targets, negatives, sampled)
    # -log(exp(positive) / (exp(positive) + sum_k exp(negative_k)))
    losses = torch.cat((positive.unsqueeze(-1), negative), -1).logsumexp(-1) - positive
    return _sum_real(losses, real)


def bce(states: Tensor, weight: Tensor, targets: Tensor, negatives: Tensor | None = None) -> Tensor:
    """Return the binary cross-entropy of target and negatives, as in SASRec (Kang and McAuley, ICDM 2018, eq. 11).

    The paper uses one negative. The mean over several gives both classes the same weight.
    """
    positive, negative, real = _logits(states, weight, targets, negatives, "bce")  # [...], [..., K], [...]
    # softplus(-x) = -log sigmoid(x) and softplus(x) = -log(1 - sigmoid(x)), without overflow for large scores.
    return _sum_real(F.softplus(-positive) + F.softplus(negative).mean(-1), real)


def gbce(
    states: Tensor,
    weight: Tensor,
    targets: Tensor,
    negatives: Tensor | None = None,
    calibration: float = 0.75,
    num_items: int | None = None,
) -> Tensor:
    """Return the generalized binary cross-entropy of gSASRec (Petrov and Macdonald, RecSys 2023, eqs. 7, 8).

    -(log sigmoid(positive)^beta + sum_k log(1 - sigmoid(negative_k))) / (K + 1), with beta = alpha (t (1 - 1/alpha) +
    1/alpha) and the sampling rate alpha = K / (V - 1). `calibration` is the paper's t: 0 gives the mean of the K + 1
    plain binary cross-entropies, 1 makes the scores estimates of the softmax's logits.

    The mean keeps the gradient in the range of the other losses whatever K is, so that one clipping threshold fits all.
    `num_items` is V where the weight holds some of the items only.
    """
    if not 0 <= calibration <= 1:
        raise ValueError(f"gbce's calibration t must lie in [0, 1], got {calibration}")
    positive, negative, real = _logits(states, weight, targets, negatives, "gbce")
    alpha = negative.shape[-1] / ((num_items or weight.shape[0]) - 1)
    beta = alpha * (calibration * (1 - 1 / alpha) + 1 / alpha)
    terms = beta * F.softplus(-positive) + F.softplus(negative).sum(-1)
    return _sum_real(terms / (negative.shape[-1] + 1), real)


def check_other_negatives(loss: LossName, options: str) -> None:
    """Check that a loss is defined for negatives that are not uniform.

    Args:
        loss: name of the loss.
        options: the options that make the negatives other than uniform, for the message; "" if all are uniform.

    Raises:
        ValueError: the loss has no negatives, or assumes that they are uniform.
    """
    reasons = {
        "cross_entropy": "goes over all items and draws none",
        "bce": "has no correction for popular items that are drawn more often",
        "gbce": "is calibrated for uniform negatives",
    }
    if options and loss in reasons:
        raise ValueError(
            f"{options} with model.init_args.loss {loss}, which {reasons[loss]}: set model.init_args.loss "
            "sampled_softmax, or data.init_args.negatives uniform and data.init_args.batch_negatives 0"
        )


LOSSES: dict[str, Loss] = {
    "cross_entropy": cross_entropy,
    "sampled_softmax": sampled_softmax,
    "bce": bce,
    "gbce": gbce,
}


class NextItemLoss:
    """Loss of a micro-batch that is given in parts of similar length.

    Args:
        name: name of the loss.
        calibration: t of `gbce`.
    """

    def __init__(self, name: LossName, calibration: float) -> None:
        self.name, self.calibration = name, calibration

    def total(self, states: Sequence[Tensor], batch: Sequence[TrainBatch], weight: Tensor, num_items: int) -> Tensor:
        """Return the sum over all parts, a float32 scalar.

        Args:
            states: [B, L, C] of each part.
            batch: targets and negatives of each part.
            weight: [V, C] item vectors, or those that the batch uses.
            num_items: V.
        """
        if self.name == "cross_entropy":
            # One call for all parts, because each call keeps a gradient of the size of all item vectors.
            targets = torch.cat([part.targets.flatten() for part in batch])
            return cross_entropy(torch.cat([part.flatten(0, 1) for part in states]), weight, targets)
        loss = LOSSES[self.name]
        if self.name == "gbce":
            loss = partial(gbce, calibration=self.calibration, num_items=num_items)
        totals = [
            loss(part_states, weight, part.targets, part.negatives)
            if part.sampled is None
            else sampled_softmax(part_states, weight, part.targets, part.negatives, part.sampled)
            for part_states, part in zip(states, batch, strict=True)
        ]
        return torch.stack(totals).sum()


def _logits(
    states: Tensor, weight: Tensor, targets: Tensor, negatives: Tensor | None, loss: str, may_be_none: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """Return float32 logits of the targets [...] and negatives [..., K], and a mask of real positions [...]."""
    if negatives is None or (negatives.shape[-1] == 0 and not may_be_none):
        raise ValueError(
            f"the loss {loss} needs negatives, and the batch has none: set data.init_args.num_negatives to 1 or more"
        )
    with torch.autocast(states.device.type, enabled=False):
        states, weight = states.float(), weight.float()
        # Padding (item 0) looks up the first row; the callers mask its terms.
        positive = (states * F.embedding((targets - 1).clamp_min(0), weight)).sum(-1)
        rows = F.embedding((negatives - 1).clamp_min(0), weight)
        if states.dim() == 3 and negatives.shape[1] == 1:
            negative = states @ rows.squeeze(1).transpose(1, 2)  # shared along the row, so no [B, L, K, C] tensor
        else:
            negative = (rows @ states.unsqueeze(-1)).squeeze(-1)
    return positive, negative, targets > 0


def _sampled_logits(
    states: Tensor, weight: Tensor, targets: Tensor, negatives: Tensor | None, sampled: SampledItems
) -> tuple[Tensor, Tensor, Tensor]:
    """Return corrected logits of the targets [B, L] and all negatives [B, L, K + M], and a mask of real positions.

    Logits of negatives that equal the target, or are in the row, are minus infinity.
    """
    if negatives is None:
        raise ValueError("expected negatives [B, L, K] beside those of the batch; K may be 0")
    positive, negative, real = _logits(states, weight, targets, negatives, "sampled_softmax", may_be_none=True)
    negative = (negative - sampled.log_negatives).masked_fill(negatives == targets.unsqueeze(-1), -torch.inf)
    with torch.autocast(states.device.type, enabled=False):
        # The correction is infinite for padding and for items of the row, which removes them from the sum.
        vectors = F.embedding((sampled.batch_negatives - 1).clamp_min(0), weight.float())
        batch_negative = states.float() @ vectors.T - sampled.log_batch_negatives.unsqueeze(1)
    return positive - sampled.log_targets, torch.cat((negative, batch_negative), -1), real


def _sum_real(losses: Tensor, real: Tensor) -> Tensor:
    """Return the sum over real positions. torch.where keeps out non-finite values of padding; a product would not."""
    return torch.where(real, losses, 0.0).sum()

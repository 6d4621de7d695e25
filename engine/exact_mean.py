"""The exact mean over an optimizer step: every loss term weighs the same, wherever it was computed.

DDP averages the gradients of its processes, and accumulation those of its micro-batches: a mean of means, in which a
term of a short micro-batch weighs more than one of a long micro-batch. Here each process differentiates its *sum* of
terms, and the finished gradients are multiplied once by ``processes / count``, with the count over all processes and
micro-batches of the step.
"""

import math
from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from engine.votes import Votes


class LossSum(NamedTuple):
    """What a family returns for a micro-batch."""

    total: Tensor  # scalar float32: the sum of the loss terms, connected to the graph even when there is no term
    count: Tensor | int  # number of terms in it


class ExactMean:
    """Collects the sums of one optimizer step and turns gradients of sums into those of the mean.

    Args:
        expected_count: about how many terms a micro-batch has. Sums are divided by the nearest power of two before
            they are differentiated, so that with fp16 they are of the size of a mean and do not overflow; dividing
            by a power of two changes no digit.
    """

    def __init__(self, expected_count: int) -> None:
        self.reference = 2.0 ** round(math.log2(max(expected_count, 1)))
        self.losses: list[Tensor] = []  # the sums of the step's micro-batches on this process, until the next step
        self._step: Tensor | None = None

    def add(self, loss: LossSum) -> Tensor:
        """Take in a micro-batch; returns the value to differentiate."""
        precise = torch.float32 if loss.total.device.type == "mps" else torch.float64
        count = torch.as_tensor(loss.count, dtype=precise, device=loss.total.device)
        sums = torch.stack([loss.total.detach().to(precise), count])
        if self._step is None:
            self.losses = []
        self.losses.append(loss.total.detach())
        self._step = sums if self._step is None else self._step + sums
        return loss.total / self.reference

    def finish(self, parameters: Iterable[nn.Parameter], votes: Votes | None = None) -> Tensor:
        """Called after the last backward of a step: corrects the gradients in place, returns the mean loss.

        Without any term in the whole step the gradients are zero and so is the mean. `votes` travel along.
        """
        assert self._step is not None, "finish() without a micro-batch"
        sums, self._step = self._step, None
        if votes is not None:
            sums = torch.cat([sums, votes.ballot({"dtype": sums.dtype, "device": sums.device})])
        processes = 1
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            processes = torch.distributed.get_world_size()
            torch.distributed.all_reduce(sums)
        if votes is not None:
            votes.count(sums[2:])
        total, count = sums[:2].unbind()
        count = count.clamp(min=1)
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        if gradients:
            factor = (processes * self.reference / count).to(torch.float32)
            torch._foreach_mul_(gradients, factor)
        return (total / count).to(torch.float32)

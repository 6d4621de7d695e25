"""Computes the exact mean of loss and gradient over the global batch: every loss term has the same weight.

DDP averages gradients over ranks, and gradient accumulation averages over micro-batches. The result is a mean of means,
in which a term of a short micro-batch weighs more than a term of a long one. Here each rank differentiates its *sum* of
terms. After the last backward pass the gradients are multiplied once by ``world_size / count``, where count is the
number of terms on all ranks and in all micro-batches of the step.
"""

import math
from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from engine.distributed.step_counters import StepCounters
from engine.lightning_internals import multiply_all
from engine.optim.grad_norm import local_shards


class LossSum(NamedTuple):
    """Loss of a micro-batch, as a family's module returns it."""

    total: Tensor  # scalar float32: sum of the loss terms, connected to the graph even without a term
    terms: Tensor | int  # number of terms in the sum


class GlobalLossMean:
    """Accumulates the loss sums of an optimizer step and turns gradients of sums into gradients of the mean.

    Args:
        expected_count: approximate number of terms in a micro-batch. Sums are divided by the nearest power of two
            before they are differentiated, so that they have the size of a mean and do not overflow in fp16. Division
            by a power of two is exact.

    Attributes:
        losses: loss sums of the step's micro-batches on this rank, until the next step begins.
    """

    def __init__(self, expected_count: int) -> None:
        self.reference = 2.0 ** round(math.log2(max(expected_count, 1)))
        self.losses: list[Tensor] = []
        self._sums: Tensor | None = None  # [2]: total and count of the step so far

    def add(self, loss: LossSum) -> Tensor:
        """Add a micro-batch, and return the scalar to differentiate."""
        # MPS has no float64.
        precise = torch.float32 if loss.total.device.type == "mps" else torch.float64
        count = torch.as_tensor(loss.terms, dtype=precise, device=loss.total.device)
        sums = torch.stack([loss.total.detach().to(precise), count])
        if self._sums is None:
            self.losses = []
        self.losses.append(loss.total.detach())
        self._sums = sums if self._sums is None else self._sums + sums
        return loss.total / self.reference

    def normalize_gradients(self, parameters: Iterable[nn.Parameter], counters: StepCounters | None = None) -> Tensor:
        """Normalize the gradients in place after the last backward pass of a step. A collective.

        If the whole step has no term, the gradients and the mean are zero.

        Args:
            parameters: parameters whose gradients DDP has averaged over ranks.
            counters: counters to sum in the same all-reduce.

        Returns:
            scalar float32: mean loss over the global batch.
        """
        assert self._sums is not None, "normalize_gradients() without a micro-batch"
        sums, self._sums = self._sums, None
        if counters is not None:
            sums = torch.cat([sums, counters.local_vector({"dtype": sums.dtype, "device": sums.device})])
        world_size = 1
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            world_size = torch.distributed.get_world_size()
            torch.distributed.all_reduce(sums)
        if counters is not None:
            counters.accumulate(sums[2:])
        total, count = sums[:2].unbind()
        count = count.clamp(min=1)
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        if gradients:
            factor = (world_size * self.reference / count).to(torch.float32)
            # On a CPU the factor is known: 1 if the terms are a power of two. A GPU would have to be waited for.
            if factor.device.type != "cpu" or factor != 1:
                # A strategy that offloads to the CPU has its gradients there.
                multiply_all(local_shards(gradients), factor.to(gradients[0].device))
        return (total / count).to(torch.float32)

"""Computes the exact mean of loss and gradient over the global batch: every loss term has the same weight.

DDP averages gradients over ranks, and gradient accumulation averages over micro-batches. The result is a mean of means,
in which a term of a short micro-batch weighs more than a term of a long one. Here each rank differentiates its *sum* of
terms. After the last backward pass the gradients are multiplied once by `world_size / count`, where count is the
number of terms on all ranks and in all micro-batches of the step.
"""

import math
from collections.abc import Iterable, Sequence
from functools import reduce
from operator import add
from typing import NamedTuple

import torch
from torch import Tensor, nn

from engine.distributed.device_numbers import copy_to_device, is_host
from engine.distributed.step_counters import StepCounters
from engine.lightning_internals.tensors import multiply_all
from engine.optim.grad_norm import local_shards


class LossSum(NamedTuple):
    """Loss of a micro-batch, as a family's module returns it."""

    total: Tensor
    """Scalar float32: sum of the loss terms, connected to the graph even without a term."""

    terms: Tensor | int
    """Number of terms in the sum."""


class GlobalLossMean:
    """Accumulates the loss sums of an optimizer step and turns gradients of sums into gradients of the mean.

    Args:
        expected_count: approximate number of terms in a micro-batch. Sums are divided by the nearest power of two
            before they are differentiated, so that they have the size of a mean and do not overflow in fp16. Division
            by a power of two is exact.

    Attributes:
        losses: loss sums of the step's micro-batches on this rank, until the next step begins.
        terms: number of terms of each of these sums.
    """

    def __init__(self, expected_count: int) -> None:
        self.reference = 2.0 ** round(math.log2(max(expected_count, 1)))
        self.losses: list[Tensor] = []
        self.terms: list[Tensor | int] = []
        self._is_complete = True  # the next micro-batch begins a step

    def add(self, loss: LossSum) -> Tensor:
        """Add a micro-batch, and return the scalar to differentiate."""
        if self._is_complete:
            self.losses, self.terms, self._is_complete = [], [], False
        self.losses.append(loss.total.detach())  # detached, so that the graph of the micro-batch is freed
        self.terms.append(loss.terms)
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
        assert not self._is_complete, "normalize_gradients() without a micro-batch"
        self._is_complete = True
        # [2 + counters]: loss sum, number of terms, counters. A single all-reduce carries them all.
        sums = self._local_sums([] if counters is None else counters.pop_pending())
        world_size = 1
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            world_size = torch.distributed.get_world_size()
            torch.distributed.all_reduce(sums)
        if counters is not None:
            counters.accumulate(sums[2:])
        mean, factor = self._mean_and_factor(sums, world_size)
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        if gradients and factor is not None:
            # One multi-tensor kernel instead of a kernel for each parameter.
            # A strategy that offloads to the CPU has its gradients there.
            multiply_all(local_shards(gradients), factor.to(gradients[0].device))
        return mean

    def _mean_and_factor(self, sums: Tensor, world_size: int) -> tuple[Tensor, Tensor | None]:
        """Return the mean loss and the factor of the gradients, scalars in float32; None for a factor of 1."""
        # On a CPU, Python's float64 arithmetic costs less than kernels on scalars.
        if is_host(sums.device):
            total, terms = sums[:2].tolist()
            terms = max(terms, 1.0)
            # Undo DDP's division by the world size and the division by the reference in `add`; divide by the terms.
            scale = world_size * self.reference / terms
            factor = None if scale == 1 else torch.tensor(scale, dtype=torch.float32)
            return torch.tensor(total / terms, dtype=torch.float32), factor
        count = sums[1].clamp(min=1)  # stays on the device: reading it would wait for a GPU
        factor = (world_size * self.reference / count).to(torch.float32)
        return (sums[0] / count).to(torch.float32), factor

    def _local_sums(self, counted: Sequence[float]) -> Tensor:
        """Return [2 + counters]: total and number of the step's loss terms on this rank, and the counters."""
        device = self.losses[0].device
        # In float32 the rounding of the total would show how the terms are split over ranks. MPS has no float64.
        dtype = torch.float32 if device.type == "mps" else torch.float64
        if is_host(device):  # Python numbers are faster here, and reading them does not wait for a device
            numbers = reduce(add, (loss.item() for loss in self.losses)), reduce(add, map(float, self.terms))
            return torch.tensor([*numbers, *counted], dtype=dtype)
        # What the host knows is copied at once: [1 + counters].
        known = copy_to_device([sum(n for n in self.terms if not isinstance(n, Tensor)), *counted], dtype, device)
        number = reduce(add, (n.to(dtype) for n in self.terms if isinstance(n, Tensor)), known[0])
        return torch.cat([torch.stack([reduce(add, (loss.to(dtype) for loss in self.losses)), number]), known[1:]])

"""Rows that processes hold, each another number of them, on every process; their gradients find the way back.

A loss that compares a sample with those of all processes, as a contrastive one does, is a function of all processes'
weights. Each process computes its own samples' terms. In the backward pass every row gets the sum of the gradients
that the processes' terms have with respect to it, and its owner takes it on into the network: so the gradients of all
processes together are those of the whole sum. Every process must call and run the backward pass, also one without rows.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from engine.gather import gathered


class Everywhere(NamedTuple):
    """Rows of all processes."""

    rows: Tensor  # [N, ...] those of the first process, then those of the second, ...
    start: int  # where this process's own begin


def gathered_rows(rows: Tensor) -> Everywhere:
    """The rows of all processes.

    Args:
        rows: [n, ...], any n on each process, also 0; the other sizes are the same on all.
    """
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return Everywhere(rows, 0)
    counts = gathered(torch.tensor(len(rows), device=rows.device)).tolist()
    return Everywhere(_Gathered.apply(rows, counts), sum(counts[: torch.distributed.get_rank()]))


class _Gathered(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, counts: list[int]) -> Tensor:
        ctx.counts = counts
        if not sum(counts):
            return rows.clone()
        padded = rows.new_zeros((max(counts), *rows.shape[1:]))
        padded[: len(rows)] = rows
        return torch.cat([part[:count] for part, count in zip(gathered(padded), counts, strict=True)])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        if not sum(ctx.counts):
            return gradient, None
        total = gradient.clone(memory_format=torch.contiguous_format)
        torch.distributed.all_reduce(total)
        return total.split(ctx.counts)[torch.distributed.get_rank()], None

"""Gathers or reduces values over all ranks: numbers, tensors, objects and rows, also with their gradients.

Every rank must make each call. Without a process group, a call returns the rank's own values.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor


class GatheredRows(NamedTuple):
    """Rows of all ranks, in the order of the ranks."""

    rows: Tensor  # [N, ...]
    start: int  # index of this rank's first row


def all_gather_tensor(values: Tensor) -> Tensor:
    """Return [world_size, ...], the values of all ranks. Shape and dtype must be the same on every rank."""
    if not _is_distributed():
        return values[None]
    gathered = [torch.empty_like(values) for _ in range(torch.distributed.get_world_size())]
    torch.distributed.all_gather(gathered, values)
    return torch.stack(gathered)


def _counts_by_rank(rows: Tensor) -> list[int]:
    """Return the number of rows of each rank. A collective."""
    # `torch.tensor(n, device=...)` would wait for a GPU before the collective, and `tolist` waits for it anyway.
    count = torch.full((), len(rows), dtype=torch.int64, device=rows.device)
    counts: list[int] = all_gather_tensor(count).tolist()
    return counts


def all_reduce_max(number: float, device: torch.device) -> float:
    """Return the maximum of a number over the ranks. `device` is the device of the rank's model."""
    return _reduce_number(number, device, torch.distributed.ReduceOp.MAX)


def all_reduce_min(number: float, device: torch.device) -> float:
    """Return the minimum of a number over the ranks. `device` is the device of the rank's model."""
    return _reduce_number(number, device, torch.distributed.ReduceOp.MIN)


def all_gather_objects(content: object) -> list[Any]:
    """Return the object of each rank. Objects are pickled, so this is slower than `all_gather_tensor`."""
    if not _is_distributed():
        return [content]
    gathered: list[Any] = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(gathered, content)
    return gathered


def all_gather_rows(*columns: Tensor) -> list[tuple[Tensor, ...]]:
    """Return the rows of each rank, in the order of the ranks; their number may differ between ranks and may be 0.

    Args:
        columns: [n, ...] each, the same n on a rank. The other sizes and the dtypes must be equal on all ranks.

    Returns:
        For each rank its columns.
    """
    if not _is_distributed():
        return [columns]
    # The counts once for all columns.
    counts = _counts_by_rank(columns[0])
    return list(zip(*(_gather_padded(column, counts) for column in columns), strict=True))


def all_gather_matrices(values: Tensor) -> list[Tensor]:
    """Return the matrix [b, n] of each rank, in the order of the ranks; both sizes may differ between ranks."""
    # [world_size, 2]; the matrices travel as flat rows of different length.
    shapes = all_gather_tensor(torch.tensor(values.shape, device=values.device)).tolist()
    return [part.view(shape) for (part,), shape in zip(all_gather_rows(values.flatten()), shapes, strict=True)]


def all_gather_rows_with_grad(rows: Tensor) -> GatheredRows:
    """Gather a different number of rows from each rank, differentiably.

    A contrastive loss compares a sample with the samples of all ranks. Each rank computes the loss terms of its own
    samples. The backward pass sums, for each row, the gradients of all ranks, and continues with the result on the rank
    that owns the row. So the ranks together compute the gradient of the sum of all terms.

    Every rank must run the backward pass too, also a rank without rows.

    Args:
        rows: [n, ...]. `n` may differ between ranks and may be 0; the other sizes must be equal.
    """
    if not _is_distributed():
        return GatheredRows(rows, 0)
    counts = _counts_by_rank(rows)
    return GatheredRows(_AllGatherRows.apply(rows, counts), sum(counts[: torch.distributed.get_rank()]))


def gather_shards(tensor: Tensor) -> Tensor:
    """Gather a tensor of which each rank holds a shard (a DTensor). Any other tensor is returned as it is."""
    if not hasattr(tensor, "full_tensor"):
        return tensor
    from torch.distributed.tensor import DTensor, Replicate

    assert isinstance(tensor, DTensor)
    # One axis of the mesh after the other; torch's `full_tensor` logs a warning for several. FSDP's axes come first: it
    # shards what tensor parallelism has left on a rank.
    placements = list(tensor.placements)
    for axis in range(len(placements)):
        placements[axis] = Replicate()
        tensor = tensor.redistribute(placements=placements)
    return tensor.to_local()


def gloo_group() -> "torch.distributed.ProcessGroup | None":
    """Return a process group of all ranks for collectives on the CPU, or None without a process group."""
    if not _is_distributed():
        return None
    if "gloo" in str(torch.distributed.get_backend()):
        return torch.distributed.group.WORLD
    # NCCL has no collectives for CPU tensors, so a second group connects the same ranks.
    return torch.distributed.new_group(backend="gloo")


class _AllGatherRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, counts: list[int]) -> Tensor:
        ctx.counts = counts
        return torch.cat(_gather_padded(rows, counts))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        # Equal on all ranks, so that none of them waits in the all-reduce.
        if not sum(ctx.counts):
            return gradient, None
        # Every rank's loss terms depend on all rows, so the gradient of a row is the sum over the ranks.
        # A contiguous copy: `all_reduce` changes its argument, and autograd may pass an expanded view.
        total = gradient.clone(memory_format=torch.contiguous_format)
        torch.distributed.all_reduce(total)
        return total.split(ctx.counts)[torch.distributed.get_rank()], None


def _gather_padded(rows: Tensor, counts: list[int]) -> list[Tensor]:
    """Return the rows of each rank, given their numbers."""
    # No rank has a row, and all ranks know it: no rank communicates.
    if not sum(counts):
        return [rows] * len(counts)
    # all_gather needs equal shapes.
    padded = rows.new_zeros((max(counts), *rows.shape[1:]))
    padded[: len(rows)] = rows
    return [part[:count] for part, count in zip(all_gather_tensor(padded), counts, strict=True)]


def _reduce_number(number: float, device: torch.device, operation: "torch.distributed.ReduceOp.RedOpType") -> float:
    if not _is_distributed():
        return number
    # float64 holds integers up to 2**53 exactly.
    reduced = torch.tensor(number, dtype=torch.float64, device=device)
    torch.distributed.all_reduce(reduced, operation)
    return reduced.item()


def _is_distributed() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()

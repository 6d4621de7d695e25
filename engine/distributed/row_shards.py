"""Divides the rows of a table among ranks and looks rows up, with torch's DTensor.

A table is a tensor [V, ...]. Whole, it is a plain tensor. Sharded, it is a DTensor of which each rank holds consecutive
rows, V / world size of them, rounded up.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from engine.distributed.collectives import all_gather_tensor

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh


TRAINED_BY_ROWS = "trained_by_rows"
"""Attribute of the weight of a table that an optimizer changes by rows (`engine.optim.row_table`)."""


class RowRange(NamedTuple):
    """Consecutive rows of a table that this rank holds."""

    first: int  # number of the first row in the table
    rows: Tensor  # [n, ...], a view: changes of it change the table


def is_trained_by_rows(parameter: Tensor) -> bool:
    """Return whether an optimizer changes the parameter by rows."""
    return getattr(parameter, TRAINED_BY_ROWS, False)


def is_sharded(table: Tensor) -> bool:
    """Return whether ranks hold different rows of a table."""
    return hasattr(table, "to_local")


def shard_rows(table: Tensor, mesh: "DeviceMesh") -> Tensor:
    """Return a table of which each rank of a one-dimensional mesh holds some rows.

    Args:
        table: [V, ...], equal on all ranks. Its memory is free when the caller drops it.
        mesh: all ranks.
    """
    from torch.distributed.tensor import Shard, distribute_tensor

    # Each rank has the whole and keeps its part, so none sends anything.
    return distribute_tensor(table.detach(), mesh, [Shard(0)], src_data_rank=None)


def new_rows(table: Tensor, shape: Sequence[int]) -> Tensor:
    """Return zeros that are divided over the ranks as a table is, such as the state of its optimizer.

    Args:
        table: [rows, ...].
        shape: shape of the result, which begins with the number of rows of the table.
    """
    from torch.distributed.tensor import DTensor, zeros

    if not isinstance(table, DTensor):
        return table.new_zeros(shape)
    return zeros(list(shape), dtype=table.dtype, device_mesh=table.device_mesh, placements=table.placements)


@torch.no_grad()
def own_rows(table: Tensor) -> RowRange:
    """Return the rows of a table [rows, C] that this rank holds: all of them, if it is not sharded."""
    from torch.distributed.tensor import DTensor

    if not isinstance(table, DTensor):
        return RowRange(0, table.detach())
    mesh = table.device_mesh
    # Rounded up, as `torch.chunk` does, so the last ranks may hold fewer rows or none.
    share = -(-table.shape[0] // mesh.size())
    return RowRange(min(mesh.get_local_rank() * share, table.shape[0]), table.to_local().detach())


@torch.no_grad()
def look_up(table: Tensor, indices: Tensor) -> Tensor:
    """Return rows [n, ...] of a table, without a gradient. For a sharded table a collective.

    Every rank sends its indices to all, and the rank that holds a row sends it: the values equal the table's to the
    bit. A rank receives the rows that it asked for, and has as many as all ranks asked for in memory meanwhile.

    Args:
        table: [V, C].
        indices: [n] int64. `n` may differ between ranks and may be 0.
    """
    from torch.distributed.tensor import DTensor, Replicate, Shard

    if not isinstance(table, DTensor):
        return table.detach().index_select(0, indices)
    counts = all_gather_tensor(torch.tensor(len(indices), device=indices.device))
    longest = max(int(counts.max()), 1)
    padded = F.pad(indices, (0, longest - len(indices)))  # ranks receive equally many rows
    requested = DTensor.from_local(
        all_gather_tensor(padded).flatten(), table.device_mesh, [Replicate()], run_check=False
    )
    # [world size * longest, C], a partial sum: each row has one non-zero addend, on the rank that holds it.
    rows = F.embedding(requested, table.detach())
    assert isinstance(rows, DTensor)
    # A reduce-scatter, which rounds nothing with one addend. Each rank receives the rows that it asked for.
    return rows.redistribute(placements=[Shard(0)]).to_local()[: len(indices)]

"""Tables of vectors that are trained by rows: a step reads, differentiates and updates only the rows that it uses.

Autograd builds a gradient of the size of the whole table, which DDP reduces and the optimizer reads in every step.
Here the rows that a micro-batch uses are a tensor of their own, and their sums over micro-batches and ranks are the
gradient of a small parameter. The optimizer, clipping, the loss scaler and guards treat it like any other parameter.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from engine.distributed.collectives import all_gather_rows
from engine.distributed.row_shards import TRAINED_BY_ROWS, is_trained_by_rows, look_up, shard_rows
from engine.optim.row_updates import RowUpdateName

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh


def is_trained(parameter: nn.Parameter) -> bool:
    """Return whether a training changes the parameter: by its gradient, or by rows (see `RowTable`)."""
    return parameter.requires_grad or is_trained_by_rows(parameter)


class Rows(NamedTuple):
    """Some rows of a table."""

    indices: Tensor  # [U] int64, each at most once
    values: Tensor  # [U, C]


class RowTable:
    """A weight [V, C] that is trained by rows.

    The weight does not require a gradient, so a gradient of its size can never arise, and DDP copies the weight to all
    ranks at the start without reducing it later. `read` returns rows that require a gradient. After the last backward
    pass of a step `collect_gradients` sums their gradients over micro-batches and ranks.

    A row is *touched* by a step if its gradient in the step has an element other than 0. This definition depends on the
    gradient alone, and not on which rows the padding of a batch happens to read.

    A strategy may divide the rows of the weight among the ranks (`shard`). Then `read` is a collective, and each rank
    updates the touched rows that it holds. All ranks have the gradient of all touched rows, so its norm needs no sum.

    Args:
        weight: parameter of the module.
        name: name of the parameter, for messages.
        update: how touched rows are updated, see `engine.optim.row_updates`.
        learning_rate: peak rate of the rows; None for the module's rate.

    Attributes:
        touched: [U, C], parameter that represents the touched rows of the current step in the optimizer. Only its
            gradient has a meaning.
        indices: [U] int64, these rows in the weight, ascending.
    """

    def __init__(
        self, weight: nn.Parameter, name: str, update: RowUpdateName, learning_rate: float | None = None
    ) -> None:
        self.weight = _mark_trained_by_rows(weight)
        self.name, self.update, self.learning_rate = name, update, learning_rate
        self.touched = nn.Parameter(weight.new_empty(0, weight.shape[1]))
        self.indices = torch.empty(0, dtype=torch.int64, device=weight.device)
        self._read: list[Rows] = []

    def shard(self, module: nn.Module, mesh: "DeviceMesh") -> None:
        """Divide the rows of the weight among the ranks, before the optimizer is built.

        Args:
            module: module of whose parameters `name` is the weight.
            mesh: all ranks; the weight is equal on each.
        """
        owner, _, name = self.name.rpartition(".")
        # A DTensor is of another class than the parameter, so the module gets a new parameter.
        setattr(module.get_submodule(owner), name, nn.Parameter(shard_rows(self.weight, mesh), requires_grad=False))
        self.follow(module)

    def follow(self, module: nn.Module) -> None:
        """Use the module's parameter, of which `Module.to` drops the attributes if it is sharded."""
        self.weight = _mark_trained_by_rows(module.get_parameter(self.name))

    def optimizer_group(self, weight_decay: float) -> dict[str, Any]:
        """Return the parameter group of the touched rows. Call it when the weight is on its device."""
        self.touched.data = self._no_rows().values
        rate = {} if self.learning_rate is None else {"lr": self.learning_rate}
        decay = {"weight_decay": weight_decay}
        return {"params": [self.touched], "name": "rows", "row_update": self.update, **decay, **rate}

    def read(self, indices: Tensor) -> Tensor:
        """Return rows [U, C] that require a gradient. If the weight is sharded, a collective.

        Args:
            indices: [U] int64, each at most once.
        """
        # A leaf of the graph: its gradient has the size of the rows, not of the table.
        rows = look_up(self.weight, indices).requires_grad_()
        self._read.append(Rows(indices, rows))
        return rows

    def forget(self) -> None:
        """Forget which rows were read. Call it before the first micro-batch of a step: trial passes read rows too."""
        self._read = []

    @torch.no_grad()
    def collect_gradients(self) -> None:
        """Set the gradient of `touched` to the mean over the ranks of the gradients of all rows read. A collective.

        It is the mean because DDP averages all other gradients. The order of the sums is fixed: first the micro-batches
        of each rank, then the ranks. So all ranks have the same gradient to the bit.
        """
        rank_rows = _sum([Rows(indices, _gradient(rows)) for indices, rows in self._read] or [self._no_rows()])
        self._read = []
        rows_by_rank = [Rows(*part) for part in all_gather_rows(rank_rows.indices, rank_rows.values)]
        indices, gradient = _sum(rows_by_rank)  # [U], [U, C]
        if len(rows_by_rank) > 1:
            gradient = gradient / len(rows_by_rank)
        changes = (gradient != 0).any(1)  # NaN is not 0
        # The positions are searched for once: their number is read from the device.
        changed = changes.nonzero().squeeze(1)
        self.indices, gradient = indices[changed], gradient[changed]
        self.touched.grad = None  # of another shape
        self.touched.data = torch.empty_like(gradient)
        self.touched.grad = gradient

    def _no_rows(self) -> Rows:
        device = self.weight.device  # read here, because a strategy moves the module after it was built
        values = torch.empty(0, self.weight.shape[1], dtype=self.weight.dtype, device=device)
        return Rows(torch.empty(0, dtype=torch.int64, device=device), values)


def _mark_trained_by_rows(weight: nn.Parameter) -> nn.Parameter:
    weight.requires_grad_(False)
    setattr(weight, TRAINED_BY_ROWS, True)
    return weight


def _gradient(rows: Tensor) -> Tensor:
    return torch.zeros_like(rows) if rows.grad is None else rows.grad


def _sum(parts: list[Rows]) -> Rows:
    """Add rows in the order of the parts. Indices are ascending in the result, and at most once in each part.

    Within a part no index occurs twice, so `index_add_` is deterministic on a GPU as well.
    """
    if len(parts) == 1:
        return parts[0]
    # indices: [U], ascending; positions: [sum of n], where each row of the parts is added in the result
    indices, positions = torch.unique(torch.cat([part.indices for part in parts]), return_inverse=True)
    total = parts[0].values.new_zeros(len(indices), parts[0].values.shape[1])
    for part, positions_of_part in zip(parts, positions.split([len(part.indices) for part in parts]), strict=True):
        total.index_add_(0, positions_of_part, part.values)
    return Rows(indices, total)

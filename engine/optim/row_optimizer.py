"""Implements Adam and AdamW that update tables by rows."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Adam, AdamW
from typing_extensions import override

from engine.distributed.row_shards import is_sharded, new_rows, own_rows
from engine.optim.custom_update import CustomUpdateOptimizer
from engine.optim.row_table import RowTable
from engine.optim.row_updates import state_shapes, update_rows


class RowOptimizer(CustomUpdateOptimizer):
    """Updates the touched rows of tables, and all other parameters as the next base class does.

    The state belongs to the parameter of the touched rows (`RowTable.touched`), and its tensors have the table's number
    of rows. If the rows of a table are divided among the ranks, so are the rows of its state.

    Args:
        tables: tables whose groups (`RowTable.optimizer_group`) are among `groups`.
        groups: parameter groups.
        settings: of the base class.
    """

    def __init__(self, tables: Sequence[RowTable], groups: list[dict[str, Any]], **settings: Any) -> None:
        self.tables: dict[nn.Parameter, RowTable] = {table.touched: table for table in tables}
        super().__init__(groups, **settings)

    @override
    def has_custom_update(self, parameter: nn.Parameter) -> bool:
        return parameter in self.tables

    @override
    def update(self, parameter: nn.Parameter, gradient: Tensor, group: dict[str, Any]) -> None:
        table = self.tables[parameter]
        state, shapes = self.state[table.touched], state_shapes(table.update, table.weight)
        if not state:
            state["step"] = torch.tensor(0.0)  # a tensor, as Adam's load_state_dict requires
            state.update({key: new_rows(table.weight, shape) for key, shape in shapes.items()})
        state["step"] += 1
        (first, weight), state_rows = own_rows(table.weight), {key: own_rows(state[key]).rows for key in shapes}
        indices = table.indices
        if is_sharded(table.weight):
            # Update only the touched rows that this rank holds, by their index among its own rows.
            held = ((indices >= first) & (indices < first + len(weight))).nonzero().squeeze(1)
            indices, gradient = indices[held] - first, gradient[held]
        # `index_select` copies [U, ...], so the updated rows and their state are written back.
        touched_state = {key: tensor.index_select(0, indices) for key, tensor in state_rows.items()}
        rows = weight.index_select(0, indices)
        update_rows(table.update, rows, gradient, touched_state, int(state["step"]), group)
        # Each row occurs once, so the order of the writes does not matter on a GPU.
        weight.index_copy_(0, indices, rows)
        for key, tensor in state_rows.items():
            tensor.index_copy_(0, indices, touched_state[key])


class RowAdamW(RowOptimizer, AdamW):
    """AdamW for all parameters but the tables."""


class RowAdam(RowOptimizer, Adam):
    """Adam for all parameters but the tables."""

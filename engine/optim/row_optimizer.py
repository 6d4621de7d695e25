"""Adam and AdamW that update tables by rows."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Adam, AdamW
from typing_extensions import override

from engine.optim.custom_update import CustomUpdateOptimizer
from engine.optim.row_table import RowTable
from engine.optim.row_updates import state_shapes, update_rows


class RowOptimizer(CustomUpdateOptimizer):
    """Updates the touched rows of tables, and all other parameters as the next base class does.

    The state belongs to the parameter of the touched rows (`RowTable.touched`), and its tensors have the table's number
    of rows.

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
        state, weight = self.state[table.touched], table.weight
        if not state:
            state["step"] = torch.tensor(0.0)  # a tensor, as Adam's load_state_dict requires
            for key, shape in state_shapes(table.update, weight).items():
                state[key] = weight.new_zeros(shape)
        state["step"] += 1
        kept = {key: state[key] for key in state_shapes(table.update, weight)}
        of_rows = {key: tensor.index_select(0, table.indices) for key, tensor in kept.items()}
        rows = table.touched.data
        update_rows(table.update, rows, gradient, of_rows, int(state["step"]), group)
        weight.index_copy_(0, table.indices, rows)
        for key, tensor in kept.items():
            tensor.index_copy_(0, table.indices, of_rows[key])


class RowAdamW(RowOptimizer, AdamW):
    """AdamW for all parameters but the tables."""


class RowAdam(RowOptimizer, Adam):
    """Adam for all parameters but the tables."""

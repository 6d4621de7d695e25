"""Names parameters in an optimizer's state dict, whose numbers depend on the order of its groups."""

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from torch import Tensor, nn
from torch.optim import Optimizer

from engine.optim.row_table import RowTable


@runtime_checkable
class HasRowTables(Protocol):
    """A module with tables that are trained by rows, as every LockstepModule is."""

    row_tables: list[RowTable]


def row_tables(module: nn.Module) -> list[RowTable]:
    """Return the tables of a module that are trained by rows; none for a plain module."""
    return module.row_tables if isinstance(module, HasRowTables) else []


def optimized_parameters(module: nn.Module) -> dict[str, nn.Parameter]:
    """Return {name: parameter in the optimizer} of all parameters: of a table that is trained by rows, `touched`."""
    touched = {table.weight: table.touched for table in row_tables(module)}
    return {name: touched.get(parameter, parameter) for name, parameter in module.named_parameters()}


def named_optimizer_state(module: nn.Module, optimizer: Optimizer) -> dict[str, Any]:
    """Return an optimizer's state dict with names of parameters instead of numbers. Tensors are not copied."""
    # A state dict numbers parameters in the order of the groups; names do not depend on the groups.
    names: dict[Tensor, str] = {parameter: name for name, parameter in optimized_parameters(module).items()}
    return {
        "state": {names[parameter]: dict(state) for parameter, state in optimizer.state.items() if state},
        "param_groups": [
            {**group, "params": [names[parameter] for parameter in group["params"]]} for group in optimizer.param_groups
        ],
    }


def number_parameters(named: Mapping[str, Any]) -> dict[str, Any]:
    """Return the state dict that the optimizer would have without shards: parameters are numbers."""
    names = [name for group in named["param_groups"] for name in group["params"]]
    numbers = {name: number for number, name in enumerate(names)}
    groups = [{**group, "params": [numbers[name] for name in group["params"]]} for group in named["param_groups"]]
    return {"state": {numbers[name]: state for name, state in named["state"].items()}, "param_groups": groups}

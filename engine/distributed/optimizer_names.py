"""Names parameters in an optimizer's state dict, whose numbers depend on the order of its groups."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer


def optimized_parameters(module: nn.Module) -> dict[str, nn.Parameter]:
    """Return {name: parameter in the optimizer} of all parameters: of a table that is trained by rows, `touched`."""
    touched = {table.weight: table.touched for table in getattr(module, "row_tables", ())}
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

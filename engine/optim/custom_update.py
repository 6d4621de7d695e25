"""Defines the base class of optimizers that update some parameters by a custom rule."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from typing_extensions import override


class CustomUpdateOptimizer(Optimizer):
    """Updates parameters with `has_custom_update` by `update`, and all others as the next base class does."""

    def has_custom_update(self, parameter: nn.Parameter) -> bool:
        """Return whether `update` updates the parameter."""
        raise NotImplementedError

    def update(self, parameter: nn.Parameter, gradient: Tensor, group: dict[str, Any]) -> None:
        """Update a parameter and its state in place.

        Args:
            parameter: the parameter.
            gradient: its gradient, of the same shape.
            group: its parameter group.
        """
        raise NotImplementedError

    @torch.no_grad()
    @override
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        gradients: dict[nn.Parameter, Tensor] = {}
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None and self.has_custom_update(parameter):
                    self.update(parameter, parameter.grad, group)
                    # The next base class ignores parameters without a gradient.
                    gradients[parameter], parameter.grad = parameter.grad, None
        try:
            super().step()
        finally:
            # The gradients stay until `zero_grad`, as after a step of any optimizer; also if the step raises.
            for parameter, gradient in gradients.items():
                parameter.grad = gradient
        return loss

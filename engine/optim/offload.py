"""Keeps an optimizer's state in CPU memory and computes its step there, for strategies that shard nothing."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from typing_extensions import override

Build = Callable[[list[dict[str, Any]], dict[Tensor, Tensor]], Optimizer]
"""Builds the optimizer, given groups of the copies in CPU memory and {parameter: its copy}."""


class OffloadedOptimizer(Optimizer):
    """Any optimizer, with its state in CPU memory.

    A step copies parameters and gradients to the CPU, computes there what the plain optimizer computes, and copies the
    parameters back. Its state dict is the state dict of the plain optimizer, so a checkpoint resumes with and without
    the offload.

    Args:
        groups: parameter groups, on any device.
        build: see Build.
    """

    def __init__(self, groups: list[dict[str, Any]], build: Build) -> None:
        self._copies: dict[Tensor, Tensor] = {p: _copy(p) for group in groups for p in group["params"]}
        on_cpu = [{**group, "params": [self._copies[p] for p in group["params"]]} for group in groups]
        self.on_cpu = build(on_cpu, self._copies)
        # The groups get the plain optimizer's options; the state stays empty here, so nothing moves it to the device.
        super().__init__([{**cpu_group, "params": group["params"]} for cpu_group, group in self._pairs(groups)], {})

    @override
    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Update the parameters; the closure, if any, computes loss and gradients first."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        # The scheduler has set the rates in the groups of this optimizer.
        self._give_options()
        for parameter, copy in self._copies.items():
            if parameter.grad is None:
                copy.grad = None
                continue
            # A loaded checkpoint or a rollback changes the parameter on the device, not its copy.
            copy.copy_(parameter)
            # `copy=True`, because `to` would return the gradient itself if it is on the CPU already.
            copy.grad = parameter.grad.to("cpu", copy=True)
        self.on_cpu.step()
        for parameter, copy in self._copies.items():
            # A parameter without a gradient is unchanged. The gradients of the copies are dropped to free their memory.
            if copy.grad is not None:
                parameter.copy_(copy)
                copy.grad = None
        return loss

    @override
    def state_dict(self) -> dict[str, Any]:
        """Return the state dict of the plain optimizer."""
        self._give_options()
        return self.on_cpu.state_dict()

    @override
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load the state dict of the plain optimizer; an OffloadedOptimizer saves the same."""
        self.on_cpu.load_state_dict(state_dict)
        # The saved options, such as the rate, become the options of these groups, which the scheduler changes.
        for cpu_group, group in self._pairs(self.param_groups):
            group.update({name: value for name, value in cpu_group.items() if name != "params"})

    def _give_options(self) -> None:
        """Copy the groups' options, such as the learning rate of the step, to the optimizer on the CPU."""
        for cpu_group, group in self._pairs(self.param_groups):
            cpu_group.update({name: value for name, value in group.items() if name != "params"})

    def _pairs(self, groups: list[dict[str, Any]]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        return list(zip(self.on_cpu.param_groups, groups, strict=True))


def _copy(parameter: Tensor) -> Tensor:
    # Transfers between a GPU and pinned memory are several times faster.
    values = torch.empty_like(parameter, device="cpu", pin_memory=parameter.is_cuda)
    return nn.Parameter(values, requires_grad=parameter.requires_grad)

"""Writes the state that a run has loaded and that it ends with, whole, so that runs can be compared to the bit."""

from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from engine.checkpointing.sharded.optimizer_names import named_optimizer_state
from engine.checkpointing.sharded.sharded_state import gather_full


class WholeState(Callback):
    """Writes `start.pt` before the first step and `end.pt` after the last: {name: tensor}, and the mesh of the shards.

    Names are those of the weights, and `PARAMETER.KEY` of the optimizer's state. `end.pt` also has the number of layers
    whose weights are whole when a backward pass begins.
    """

    def __init__(self) -> None:
        self._whole_layers = 0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        _write(trainer, pl_module, "start.pt")

    def on_before_backward(self, trainer: Trainer, pl_module: LightningModule, loss: torch.Tensor) -> None:
        layers = [part for part in list(pl_module.modules())[1:] if isinstance(part, FSDPModule)]
        whole = [layer for layer in layers if not any(isinstance(weight, DTensor) for weight in layer.parameters())]
        self._whole_layers = len(whole)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        _write(trainer, pl_module, "end.pt", self._whole_layers)


def _write(trainer: Trainer, module: LightningModule, name: str, whole_layers: int = 0) -> None:
    weights, (optimizer,) = dict(module.state_dict()), trainer.optimizers
    state = named_optimizer_state(module, getattr(optimizer, "optimizer", optimizer))["state"]
    meshes = {tuple(weight.device_mesh.shape) for weight in weights.values() if isinstance(weight, DTensor)}
    tensors: dict[str, Any] = gather_full(weights, trainer.is_global_zero)
    for parameter, of_one in gather_full(state, trainer.is_global_zero).items():
        tensors |= {f"{parameter}.{key}": torch.as_tensor(value) for key, value in of_one.items() if value is not None}
    if trainer.is_global_zero:
        content = {"tensors": tensors, "meshes": sorted(meshes), "whole_layers": whole_layers}
        torch.save(content, Path(trainer.default_root_dir) / name)


def whole_state() -> list[str]:
    """Return the options of a training that writes its state."""
    return [f"--trainer.callbacks+={__name__}.WholeState"]

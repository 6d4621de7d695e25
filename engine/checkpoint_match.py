"""Whether a checkpoint is of this program and of this model; says what it lacks instead of a KeyError."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lightning.pytorch import LightningModule
from torch import nn

_OF_LIGHTNING = ("state_dict", "pytorch-lightning_version")
_OF_A_FIT = ("optimizer_states", "lr_schedulers", "loops", "global_step", "epoch")
_NAMED = 3  # names of each kind that a message has at most


def require_lightning(checkpoint: Any, path: Path) -> None:
    """
    Raises:
        ValueError: it is no checkpoint of Lightning's; names what it lacks.
    """
    lacking = [key for key in _OF_LIGHTNING if not isinstance(checkpoint, Mapping) or key not in checkpoint]
    if lacking:
        raise ValueError(
            f"{path} is no Lightning checkpoint: it has no {' and no '.join(lacking)}. --ckpt_path takes what a run "
            "has saved, such as runs/NAME/checkpoints/best.ckpt"
        )


def require_match(module: LightningModule, checkpoint: Mapping[str, Any]) -> None:
    """Compares names and shapes of the weights, before any of them is loaded.

    Strategies that load shards by themselves hand a checkpoint without weights on, and from folders without the
    optimizer's state: nothing to compare then.

    Raises:
        ValueError: the checkpoint is of another model, or the run cannot go on with it.
    """
    if module._trainer is None:  # read by hand, by somebody who may want a part of it
        return
    if module.strict_loading and "state_dict" in checkpoint:
        differences = _differences(module.state_dict(), checkpoint["state_dict"])
        if differences:
            raise ValueError(
                f"the checkpoint was written by another model or config: {'; '.join(differences)}. Give the config "
                "that it was trained with, or train anew under another --run_name"
            )
    loaded = () if "state_dict" in checkpoint else ("optimizer_states",)
    lacking = [key for key in _OF_A_FIT if key not in checkpoint and key not in loaded]
    if module.trainer.state.fn == "fit" and lacking:
        raise ValueError(
            f"the checkpoint has weights, but no {', '.join(lacking)}: it can be tested, but a run cannot go on with it"
        )


def _differences(own: Mapping[str, Any], saved: Mapping[str, Any]) -> list[str]:
    shaped = {name for name, weight in own.items() if hasattr(weight, "shape") and not _is_lazy(weight)}
    kinds = {
        "it lacks": [name for name in own if name not in saved],
        "the model lacks": [name for name in saved if name not in own],
        "of another shape are": [
            f"{name} ({tuple(saved[name].shape)}, in the model {tuple(own[name].shape)})"
            for name in own
            if name in shaped and hasattr(saved.get(name), "shape") and saved[name].shape != own[name].shape
        ],
    }
    return [f"{kind} {_few(names)}" for kind, names in kinds.items() if names]


def _few(names: list[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _is_lazy(weight: Any) -> bool:
    return isinstance(weight, nn.parameter.UninitializedTensorMixin)

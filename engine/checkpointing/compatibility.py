"""Checks that a checkpoint matches the program and the model, and can be loaded with `weights_only`."""

import io
import pickle
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningModule
from torch.nn.parameter import is_lazy

from engine.io.name_list import join_names
from engine.lightning_internals.training_loop import is_attached

_LIGHTNING_KEYS = ("state_dict", "pytorch-lightning_version")
_FIT_KEYS = ("optimizer_states", "lr_schedulers", "loops", "global_step", "epoch")
_MAX_NAMES = 3  # of each kind of difference, in a message

_PLAIN_TYPES = (type(None), bool, int, float, complex, str, bytes, torch.Tensor, torch.nn.Parameter, torch.Size)
_CONTAINERS = (list, tuple, set)


def require_lightning(checkpoint: object, path: Path) -> None:
    """Check that a file holds a Lightning checkpoint.

    Args:
        checkpoint: content of the file.
        path: the file, for the message.

    Raises:
        ValueError: a key of Lightning's is missing; names it.
    """
    missing = [key for key in _LIGHTNING_KEYS if not isinstance(checkpoint, Mapping) or key not in checkpoint]
    if missing:
        raise ValueError(
            f"{path} is not a Lightning checkpoint: it has no {' and no '.join(missing)}. --ckpt_path expects a "
            "checkpoint that a run has saved, such as runs/NAME/checkpoints/best.ckpt"
        )


def check_model_match(module: LightningModule, checkpoint: Mapping[str, Any]) -> None:
    """Compare names, shapes and types of a checkpoint's weights with the model, before they are loaded.

    A sharded strategy loads weights itself and passes a checkpoint without them, and without optimizer state. These
    parts are not compared.

    Raises:
        ValueError: the checkpoint is of another model, has a NaN in a parameter that is evaluated, or a fit cannot
            resume from it.
    """
    if not is_attached(module):  # loaded outside a run, where the caller may need only a part of the weights
        return
    path = getattr(module.trainer, "ckpt_path", None) or "the checkpoint"
    is_fit = module.trainer.state.fn == "fit"
    if module.strict_loading and "state_dict" in checkpoint:
        differences = _differences(module.state_dict(), checkpoint["state_dict"])
        if differences:
            raise ValueError(
                f"{path} was written by another model or config: {'; '.join(differences)}. Use the config "
                "that it was trained with, or start from scratch with another --run_name"
            )
    if not is_fit:  # a fit ends at the first loss that is not finite
        _check_numbers(module, checkpoint.get("state_dict", {}), path)
    loaded_by_strategy = () if "state_dict" in checkpoint else ("optimizer_states",)
    missing = [key for key in _FIT_KEYS if key not in checkpoint and key not in loaded_by_strategy]
    if is_fit and missing:
        raise ValueError(
            f"{path} has weights, but no {', '.join(missing)}: it can be tested, but training cannot resume from it"
        )


def check_weights_only_loadable(content: Any, key: str = "checkpoint") -> None:
    """Check that `torch.load(weights_only=True)` can load `content` after it is saved.

    Args:
        content: checkpoint, or a part of a checkpoint.
        key: where `content` is in the checkpoint, for the message.

    Raises:
        TypeError: names the key of the first value that cannot be loaded, such as a pathlib.Path.
    """
    kind = type(content)
    # The exact type: `weights_only` refuses subclasses of dict that it does not know.
    if kind in (dict, OrderedDict):
        for name, value in content.items():
            check_weights_only_loadable(name, f"{key}'s key {name!r}")
            check_weights_only_loadable(value, f"{key}[{name!r}]")
    elif kind in _CONTAINERS:
        for index, value in enumerate(content):
            check_weights_only_loadable(value, f"{key}[{index}]")
    elif kind not in _PLAIN_TYPES and not _is_loadable(content):
        raise TypeError(
            f"{key} is a {kind.__module__}.{kind.__qualname__} ({str(content)[:80]!r}), which torch.load(weights_only="
            "True) refuses: the checkpoint could be saved but not loaded. Store a plain value, such as str(...) of a "
            "path"
        )


def _check_numbers(module: LightningModule, saved: Mapping[str, Any], path: object) -> None:
    """Refuse parameters with a NaN: every score would be NaN, and every metric that of the last rank."""
    names = [name for name, _ in module.named_parameters() if isinstance(saved.get(name), torch.Tensor)]
    broken = [name for name in names if saved[name].is_floating_point() and bool(saved[name].isnan().any())]
    if broken:
        raise ValueError(
            f"{path}: found NaN in {join_names(broken, _MAX_NAMES)}, expected numbers; use another checkpoint"
        )


def _differences(model: Mapping[str, Any], saved: Mapping[str, Any]) -> list[str]:
    # A lazy parameter has no shape before the first forward pass.
    shaped = {name for name, weight in model.items() if hasattr(weight, "shape") and not is_lazy(weight)}
    kinds = {
        "missing in the checkpoint:": [name for name in model if name not in saved],
        "missing in the model:": [name for name in saved if name not in model],
        "different shapes:": [
            f"{name} ({tuple(saved[name].shape)}, in the model {tuple(model[name].shape)})"
            for name in model
            if name in shaped and hasattr(saved.get(name), "shape") and saved[name].shape != model[name].shape
        ],
        "different types:": [
            f"{name} ({saved[name].dtype}, in the model {model[name].dtype})"
            for name in model
            if name in shaped and hasattr(saved.get(name), "dtype") and _family(saved[name]) != _family(model[name])
        ],
    }
    return [f"{kind} {join_names(names, _MAX_NAMES)}" for kind, names in kinds.items() if names]


def _family(weight: torch.Tensor) -> str:
    """Return the family of a dtype. Loading a weight of another dtype of its family only rounds it."""
    if weight.is_complex():
        return "complex"
    if weight.is_floating_point():
        return "floating point"
    return "bool" if weight.dtype == torch.bool else "integer"


def _is_loadable(content: object) -> bool:
    # torch allows further classes, such as dtypes; trying is the only complete test.
    file = io.BytesIO()
    try:
        torch.save(content, file)
        file.seek(0)
        torch.load(file, weights_only=True)
    except (pickle.PicklingError, pickle.UnpicklingError, TypeError, AttributeError, RuntimeError):
        return False
    return True

"""Refuses to save what `weights_only` would refuse to load, by the name of its key."""

import io
import pickle
from collections import OrderedDict
from typing import Any

import torch

_PLAIN = (type(None), bool, int, float, complex, str, bytes, torch.Tensor, torch.nn.Parameter, torch.Size)
_CONTAINERS = (list, tuple, set)


def require_loadable(content: Any, key: str = "checkpoint") -> None:
    """Looks through what is to be saved.

    Raises:
        TypeError: names the key of something that cannot be loaded again, such as a pathlib.Path.
    """
    kind = type(content)
    if kind in (dict, OrderedDict):
        for name, value in content.items():
            require_loadable(name, f"{key}'s key {name!r}")
            require_loadable(value, f"{key}[{name!r}]")
    elif kind in _CONTAINERS:
        for index, value in enumerate(content):
            require_loadable(value, f"{key}[{index}]")
    elif kind not in _PLAIN and not _comes_back(content):
        raise TypeError(
            f"{key} is a {kind.__module__}.{kind.__qualname__} ({str(content)[:80]!r}), which torch.load(weights_only="
            "True) refuses: a checkpoint with it could be saved but not loaded. Keep a plain value there, such as "
            "str(...) of a path"
        )


def _comes_back(content: Any) -> bool:
    file = io.BytesIO()
    try:
        torch.save(content, file)
        file.seek(0)
        torch.load(file, weights_only=True)
    except (pickle.PicklingError, pickle.UnpicklingError, TypeError, AttributeError, RuntimeError):
        return False
    return True

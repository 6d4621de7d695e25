"""Compiles a transformer's layers with torch.compile."""

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn


def compile_layers(layers: Iterable[nn.Module]) -> None:
    """Compile each layer in place, at its first call. The names of weights do not change.

    Layers of the same class share the compiled code, so twenty layers compile as fast as a single layer, while a whole
    model takes minutes. Code between the layers (masks, the cross-entropy of any number of tokens) is not compiled.
    """
    for layer in layers:
        # The width of the rows differs from batch to batch.
        layer.compile(dynamic=True)


def uncompiled(compiled: bool) -> AbstractContextManager[Any]:
    """Run layers uncompiled inside the context: a cache that grows token by token would recompile them each time."""
    # The stance holds for the process and ends with the context; the compiled code of the training is kept.
    return torch.compiler.set_stance("force_eager") if compiled else nullcontext()

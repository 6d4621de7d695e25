"""Layers that torch.compile makes kernels of."""

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn


def compile_layers(layers: Iterable[nn.Module]) -> None:
    """Has each layer compiled when it is first run, in place; names of weights stay as they are.

    Layers of one kind share what was compiled, so it takes as long for twenty as for one, where a model that is
    compiled whole takes minutes. What is between them (masks, the cross-entropy at supervised tokens alone, whose
    number differs in every batch) runs as it is written.
    """
    for layer in layers:
        # Rows are of another width in every batch.
        layer.compile(dynamic=True)


def uncompiled(compiled: bool) -> AbstractContextManager[Any]:
    """Layers run as they are written inside: a cache that grows by a token would have them compiled again and again."""
    return torch.compiler.set_stance("force_eager") if compiled else nullcontext()

"""Fixture `graphs`: the graphs that torch compiles, without a C++ compiler."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import torch


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Replace the compiler, which needs C++, and yield the list of the graphs that torch compiles."""
    from torch._dynamo.backends.debugging import aot_eager

    found: list[Any] = []

    def kept(graph: Any, inputs: Any, **options: Any) -> Any:
        found.append(graph)
        return aot_eager(graph, inputs, **options)

    torch._dynamo.reset()
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=kept, fullgraph=True))
    yield found
    torch._dynamo.reset()

"""Counts the bytes that operations read and write, and copies as many."""

import math
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from benchmarks.device.measures.timing import Work

_BUFFER = 1 << 30  # far more than the caches hold
_OVERWRITE = {"copy_", "fill_", "zero_", "random_", "bernoulli_", "uniform_", "normal_", "exponential_"}
"""Operations that do not read their output tensor."""


class Traffic(TorchDispatchMode):
    """Counts the arguments and results of each operation once, while it is active.

    This is the least that unfused operations move if no result stays in a cache. Views move nothing, and an expanded
    tensor counts with its stored size.
    """

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name, options = func._schema.name.removeprefix("aten::"), dict(kwargs or {})
        options.pop("out", None)
        read = _tensors((args[1:] if name in _OVERWRITE else args, options))
        written = _tensors(result)
        if not self._moves_nothing(func, _tensors(args), written):
            self.bytes += sum(map(_bytes, (*read, *written)))
        return result

    @staticmethod
    def _moves_nothing(func: Any, given: list[Tensor], written: list[Tensor]) -> bool:
        if "empty" in func._schema.name:
            return True
        there = {part.untyped_storage().data_ptr() for part in given}
        # Includes reshapes that are not declared as views.
        return not func._schema.is_mutable and any(part.untyped_storage().data_ptr() in there for part in written)


def bytes_of(work: Work) -> int:
    """Return the bytes of a call."""
    with Traffic() as traffic:
        work()
    return traffic.bytes


class Copy:
    """Copies through memory until so many bytes are read and written."""

    def __init__(self, device: str, moved: int, buffer: int = _BUFFER) -> None:
        # Half is read and half is written.
        size = min(max(1, moved // 2), buffer)
        self.source = torch.randint(0, 256, (size,), dtype=torch.uint8, device=device)
        self.target = torch.empty_like(self.source)
        self.whole, self.rest = divmod(moved // 2, size)

    def __call__(self) -> None:
        """Copy once."""
        for _ in range(self.whole):
            self.target.copy_(self.source)
        if self.rest:
            self.target[: self.rest].copy_(self.source[: self.rest])


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


def _bytes(part: Tensor) -> int:
    # A stride of 0 repeats an element that is stored once.
    there = math.prod(size for size, stride in zip(part.shape, part.stride(), strict=True) if stride)
    return there * part.element_size() if part.numel() else 0

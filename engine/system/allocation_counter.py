"""Counts the bytes of living tensors, and their peak."""

import weakref
from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor
from torch.distributed.tensor import DTensor
from typing_extensions import override

from engine.lightning_internals.tensors import DispatchMode


class AllocationCounter(DispatchMode):
    """Context that counts the storages of all tensors that operations return inside it.

    A storage counts from the operation that returns it until its last tensor is freed, so the peak is what an allocator
    without fragments hands out. Memory that a kernel takes and frees within an operation is not seen.

    Args:
        resizable: storages change their size, as FSDP frees and fills gathered weights: they are measured again at
            each allocation, which takes longer.
    """

    def __init__(self, resizable: bool = False) -> None:
        super().__init__()
        self.peaks: list[int] = []
        """Peak of each interval that `mark` has ended, in bytes."""
        self._resizable = resizable
        self._living: dict[int, tuple[Callable[[], Any], int]] = {}
        self._bytes = self._peak = 0

    @property
    def now(self) -> int:
        """Bytes of the tensors that live now."""
        if self._resizable:
            return sum(storage.nbytes() for reference, _ in list(self._living.values()) if (storage := reference()))
        return self._bytes

    def mark(self) -> None:
        """End an interval: append its peak to `peaks`. The next interval begins with the tensors that live now."""
        self.peaks.append(self._peak)
        self._peak = self.now

    @override
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented  # its own dispatch comes first, and calls this with the shards
        result = func(*args, **(kwargs or {}))
        # A list rather than a generator, so that every tensor is added.
        if any([self._add(tensor) for tensor in _tensors(result)]):
            self._peak = max(self._peak, self.now)
        return result

    def _add(self, tensor: Tensor) -> bool:
        """Count a storage; return whether it is new."""
        storage = tensor.untyped_storage()
        key = id(storage)  # torch keeps the object as long as the storage
        if key in self._living:
            return False

        def drop(_: object) -> None:
            self._bytes -= self._living.pop(key)[1]

        self._living[key] = weakref.ref(storage, drop), storage.nbytes()
        self._bytes += storage.nbytes()
        return True


def _tensors(result: object) -> Iterator[Tensor]:
    if isinstance(result, Tensor):
        yield result
    elif isinstance(result, list | tuple):
        for each in result:
            yield from _tensors(each)

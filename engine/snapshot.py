"""A copy of a checkpoint in the memory of the machine, which training cannot change while it is written."""

import copy
from typing import Any

import torch
from torch import Tensor


class Snapshot:
    """Takes copies, one after another, into the same memory: allocating it anew takes longer than copying into it."""

    def __init__(self) -> None:
        self._buffers: dict[tuple[Any, ...], list[Tensor]] = {}

    def take(self, checkpoint: dict[str, Any]) -> dict[str, Any]:
        """The checkpoint with all its tensors on the CPU; valid until the next `take`. Shared tensors stay shared."""
        tensors: dict[int, Tensor] = {}
        _collect(checkpoint, tensors)
        free = {kind: list(buffers) for kind, buffers in self._buffers.items()}
        copies: dict[tuple[Any, ...], Tensor] = {}
        memo: dict[int, Any] = {}
        for identity, tensor in tensors.items():
            kind = (tuple(tensor.shape), tensor.dtype, tensor.device.type == "cuda")
            place = (tensor.device, tensor.data_ptr(), tensor.stride(), *kind)
            if place not in copies:
                copies[place] = self._buffer(kind, free).copy_(tensor.detach(), non_blocking=True)
            memo[identity] = copies[place]
        if any(tensor.is_cuda for tensor in tensors.values()):
            torch.cuda.synchronize()
        return copy.deepcopy(checkpoint, memo)

    def _buffer(self, kind: tuple[Any, ...], free: dict[tuple[Any, ...], list[Tensor]]) -> Tensor:
        if free.get(kind):
            return free[kind].pop()
        shape, dtype, pinned = kind
        buffer = torch.empty(shape, dtype=dtype, pin_memory=pinned)
        self._buffers.setdefault(kind, []).append(buffer)
        return buffer


def _collect(content: Any, tensors: dict[int, Tensor]) -> None:
    if isinstance(content, Tensor):
        tensors[id(content)] = content
    elif isinstance(content, dict):
        for value in content.values():
            _collect(value, tensors)
    elif isinstance(content, (list, tuple, set)):
        for value in content:
            _collect(value, tensors)

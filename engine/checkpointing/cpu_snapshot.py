"""Copies a checkpoint to CPU memory, where training cannot change it while an asynchronous save writes it."""

import copy
from typing import Any

import torch
from torch import Tensor

_BufferKey = tuple[tuple[int, ...], torch.dtype, bool]  # shape, dtype, whether the memory is pinned


class Snapshot:
    """Copies checkpoints into buffers that are reused: allocating memory takes longer than copying into it."""

    def __init__(self) -> None:
        self._buffers: dict[_BufferKey, list[Tensor]] = {}

    def copy_to_cpu(self, checkpoint: dict[str, object]) -> dict[str, Any]:
        """Return a deep copy of a checkpoint with all tensors on the CPU.

        The copy is valid until the next call. Tensors that share memory share it in the copy.
        """
        tensors: dict[int, Tensor] = {}
        _collect_tensors(checkpoint, tensors)
        # Buffers of the previous copy. A buffer fits any tensor of the same shape, dtype and kind of memory.
        free = {key: list(buffers) for key, buffers in self._buffers.items()}
        copies: dict[tuple[Any, ...], Tensor] = {}
        memo: dict[int, Any] = {}
        for identity, tensor in tensors.items():
            key = (tuple(tensor.shape), tensor.dtype, tensor.device.type == "cuda")
            # Tied weights have the same memory. Their copies share it too, or the file would hold the weight twice.
            memory = (tensor.device, tensor.data_ptr(), tensor.stride(), *key)
            if memory not in copies:
                copies[memory] = self._take_buffer(key, free).copy_(tensor.detach(), non_blocking=True)
            memo[identity] = copies[memory]
        # Copies to pinned memory run asynchronously; the training may change the tensors as soon as this returns.
        if any(tensor.is_cuda for tensor in tensors.values()):
            torch.cuda.synchronize()
        # `deepcopy` takes each tensor's copy from the memo, by its id, and copies the containers and numbers.
        return copy.deepcopy(checkpoint, memo)

    def _take_buffer(self, key: _BufferKey, free: dict[_BufferKey, list[Tensor]]) -> Tensor:
        if free.get(key):
            return free[key].pop()
        shape, dtype, pinned = key
        buffer = torch.empty(shape, dtype=dtype, pin_memory=pinned)
        self._buffers.setdefault(key, []).append(buffer)
        return buffer


def _collect_tensors(content: object, tensors: dict[int, Tensor]) -> None:
    if isinstance(content, Tensor):
        tensors[id(content)] = content
    elif isinstance(content, dict):
        for value in content.values():
            _collect_tensors(value, tensors)
    elif isinstance(content, (list, tuple, set)):
        for value in content:
            _collect_tensors(value, tensors)

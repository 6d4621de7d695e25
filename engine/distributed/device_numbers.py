"""Copies numbers of the host to a device without waiting for it."""

from collections.abc import Sequence

import torch
from torch import Tensor


def is_host(device: torch.device) -> bool:
    """Return whether numbers of the device's tensors are read without waiting."""
    return device.type == "cpu"


def copy_to_device(numbers: Sequence[float], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return numbers [n] as a tensor of a device.

    `torch.tensor(numbers, device=device)` waits until a GPU has finished all that was queued before, because the copy
    reads memory that the system may move. From page-locked memory the copy is queued as well.
    """
    if device.type != "cuda":
        return torch.tensor(numbers, dtype=dtype, device=device)
    return torch.tensor(numbers, dtype=dtype, pin_memory=True).to(device, non_blocking=True)

"""What every process holds, on every process. Every process must call; one alone gets its own."""

from typing import Any

import torch
from torch import Tensor


def gathered(values: Tensor) -> Tensor:
    """[processes, ...]: a tensor of the same shape from each."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return values[None]
    everywhere = [torch.empty_like(values) for _ in range(torch.distributed.get_world_size())]
    torch.distributed.all_gather(everywhere, values)
    return torch.stack(everywhere)


def gathered_objects(content: Any) -> list[Any]:
    """What can be pickled, from each; slower than `gathered`."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return [content]
    everywhere: list[Any] = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(everywhere, content)
    return everywhere

"""What every process holds, on every process."""

import torch
from torch import Tensor


def gathered(values: Tensor) -> Tensor:
    """[processes, ...]: a tensor of the same shape from each. Every process must call; one alone gets its own."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return values[None]
    everywhere = [torch.empty_like(values) for _ in range(torch.distributed.get_world_size())]
    torch.distributed.all_gather(everywhere, values)
    return torch.stack(everywhere)

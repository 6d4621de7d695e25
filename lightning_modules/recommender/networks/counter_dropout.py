"""Drops activations fast on a CPU.

torch draws a 32-bit number per element, which on a CPU takes longer than the attention before it. Here a 64-bit number
decides four elements, and the mask has one byte per element, which is four to five times faster. Other devices use
torch's fused kernel. The bits are hashes of keys (dropout_keys.py), or numbers of torch's global generators where there
are no keys, as on other devices.
"""

import torch
from torch import Tensor
from torch.nn import functional as F
from typing_extensions import override

from lightning_modules.recommender.networks.dropout_keys import KeyedDropoutLayer, keyed_bits

_LEVELS = 1 << 16


def keep_mask(
    shape: torch.Size, p: float, device: torch.device, keys: Tensor | None = None, first: int = 0
) -> tuple[Tensor, float]:
    """Draw a dropout mask.

    Args:
        shape: shape of the mask.
        p: probability of dropping an element, rounded to a multiple of 2**-16.
        device: device of the mask.
        keys: [B] int64, keys of the mask's rows, see `KeyedDropoutLayer`; None for torch's generator.
        first: see `keyed_bits`.

    Returns:
        (mask, scale): uint8 ones and zeros, and 1 / P(kept) for the rounded probability, so the expectation is exact.
    """
    dropped, scale = dropped_levels(p)
    if keys is None:
        # None as upper bound draws from all 2**64 int64 numbers, each of which is four independent int16 lanes.
        draws = torch.empty(-(-shape.numel() // 4), dtype=torch.int64, device=device)
        lanes = draws.random_(-(2**63), None).view(torch.int16)[: shape.numel()].view(shape)
    else:
        # Whole numbers in each row of the last dimension, so an element's lane does not depend on the row's length.
        lanes = keyed_bits(keys, [*shape[1:-1], -(-shape[-1] // 4)], first).view(torch.int16)[..., : shape[-1]]
    # Lanes are uniform in [-2**15, 2**15). torch does not vectorize a comparison of int16 into bool: in place, with the
    # conversion, it is 7 times as fast. And it multiplies floats by uint8 much faster than by bool.
    return lanes.ge_(dropped - _LEVELS // 2).to(torch.uint8), scale


def dropped_levels(p: float) -> tuple[int, float]:
    """Return how many of 2**16 levels drop an element, and 1 / P(kept) for that probability."""
    dropped = round(p * _LEVELS)
    return dropped, _LEVELS / (_LEVELS - dropped)


class Dropout(KeyedDropoutLayer):
    """Zeroes elements with probability `p` in training and scales the others by 1 / (1 - p).

    Takes any shape without keys. With keys, the first dimension indexes the rows.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        if not 0 <= p < 1 or round(p * _LEVELS) == _LEVELS:
            raise ValueError(f"dropout must lie in [0, 1), and below 1 by 2**-17 at least; found {p}")
        self.p = p

    @override
    def forward(self, x: Tensor, call: int = 0, shared: bool = False) -> Tensor:
        """Drop elements.

        Args:
            x: [B, ..., C], or [..., C] if `shared`.
            call: distinguishes the calls in a forward pass.
            shared: whether all rows of a step share the mask, as for a table of position embeddings.
        """
        if not self.training or self.p == 0:
            return x
        if x.device.type != "cpu":
            return F.dropout(x, self.p)
        if shared:
            mask, scale = keep_mask(torch.Size((1, *x.shape)), self.p, x.device, self.step_key(call))
            return x * mask[0] * scale
        mask, scale = keep_mask(x.shape, self.p, x.device, self.row_keys(call))
        return x * mask * scale

    @override
    def extra_repr(self) -> str:
        return f"p={self.p}"

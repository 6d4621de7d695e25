"""Assigns times to logarithmic buckets: seconds matter after seconds, and weeks after years.

The width is taken from HSTU's public code (Zhai et al., "Actions Speak Louder than Words", ICML 2024): a bucket ends at
e^0.301 = 1.35 times its beginning, and the last bucket begins after 7.4 years.
"""

from typing import Literal

import torch
from torch import Tensor

TimeBuckets = Literal["linear", "log"]
"""How intervals are counted: in units of the user's time scale, or in logarithmic buckets of seconds."""

LAST_BUCKET = 64


def time_buckets(seconds: Tensor) -> Tensor:
    """Return floor(log(max(seconds, 1)) / 0.301), at most LAST_BUCKET.

    Args:
        seconds: int64 of any shape. Negative times are in bucket 0.

    Returns:
        int64 in [0, LAST_BUCKET], of the same shape.
    """
    if seconds.device.type != "cpu" or seconds.dim() < 2 or torch.compiler.is_compiling():
        return _buckets(seconds)
    # Row by row, what is computed stays in the cache, which halves the time.
    buckets = torch.empty_like(seconds)
    for row, row_seconds in zip(buckets, seconds, strict=True):
        row.copy_(_buckets(row_seconds))
    return buckets


def _buckets(seconds: Tensor) -> Tensor:
    # In float32 the logarithms of whole seconds beside a border are equal, or differ between torch and onnxruntime. In
    # float64 they are far enough from each border of these buckets. MPS has no float64. The exporter rounds a factor
    # such as 0.301 to float32, which moves borders; it keeps whole numbers.
    exact = torch.float32 if seconds.device.type == "mps" else torch.float64
    logarithms = seconds.to(exact).clamp_(min=1).log_()
    return logarithms.mul_(1000).div_(301).long().clamp_(max=LAST_BUCKET)

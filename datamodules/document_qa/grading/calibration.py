"""Whether a model is as often right as it says it is."""

import math
from collections.abc import Sequence

BINS = 15
"""Of equal width, as Guo et al. have it; fixed, so that figures can be compared."""


def calibration_error(confidences: Sequence[float], right: Sequence[float]) -> float:
    """Expected calibration error: the mean distance of confidence and share of right answers, over bins by confidence.

    Guo et al., "On calibration of modern neural networks", 2017, with 15 bins (i / 15, (i + 1) / 15]; a confidence of 0
    is in the first.

    Args:
        confidences: 0 to 1, of each answer.
        right: 0 to 1, of each answer.

    Raises:
        ValueError: there are no answers, or not as many of both.
    """
    if not confidences:
        raise ValueError("no answers have no calibration error")
    bins: list[list[float]] = [[] for _ in range(BINS)]
    for confidence, points in zip(confidences, right, strict=True):
        bins[min(BINS - 1, max(0, math.ceil(confidence * BINS) - 1))].append(confidence - points)
    return math.fsum(abs(math.fsum(distances)) for distances in bins) / len(confidences)

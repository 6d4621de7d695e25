"""Measures the calibration of confidences."""

import math
from collections.abc import Sequence

BINS = 15
"""Number of bins of equal width, as in Guo et al.; fixed, so that metrics are comparable."""


def calibration_error(confidences: Sequence[float], right: Sequence[float]) -> float:
    """Return the expected calibration error: the mean distance of confidence and accuracy over bins of confidence.

    Guo et al., "On calibration of modern neural networks", 2017, with 15 bins (i / 15, (i + 1) / 15]; a confidence of 0
    is in the first.

    Args:
        confidences: confidence of each answer, 0 to 1.
        right: score of each answer, 0 to 1.

    Raises:
        ValueError: there are no answers, or the lengths differ.
    """
    if not confidences:
        raise ValueError("found no answers, so there is no calibration error")
    bins: list[list[float]] = [[] for _ in range(BINS)]
    for confidence, points in zip(confidences, right, strict=True):
        bins[min(BINS - 1, max(0, math.ceil(confidence * BINS) - 1))].append(confidence - points)
    return math.fsum(abs(math.fsum(distances)) for distances in bins) / len(confidences)

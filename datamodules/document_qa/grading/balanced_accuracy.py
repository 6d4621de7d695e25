"""Computes the balanced accuracy of choice questions."""

from collections import defaultdict
from collections.abc import Sequence


def balanced_accuracy(right: Sequence[int], predictions: Sequence[int]) -> float:
    """Return the mean of the accuracies of questions whose right option is A, B, and so on.

    A constant answer gets 1 / number of letters (Brodersen et al., "The balanced accuracy and its posterior
    distribution", 2010).

    Raises:
        ValueError: there are no questions, or the lengths differ.
    """
    if not right:
        raise ValueError("found no questions, so there is no balanced accuracy")
    hits: dict[int, list[bool]] = defaultdict(list)
    for expected, predicted in zip(right, predictions, strict=True):
        hits[expected].append(predicted == expected)
    return sum(sum(letter_hits) / len(letter_hits) for _, letter_hits in sorted(hits.items())) / len(hits)

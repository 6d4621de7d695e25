"""Accuracy that a preference for a letter does not help."""

from collections import defaultdict
from collections.abc import Sequence


def balanced_accuracy(right: Sequence[int], chosen: Sequence[int]) -> float:
    """The mean of the accuracies of the questions whose right option is A, of those where it is B, and so on.

    Whoever always says the most frequent letter gets 1 / letters (Brodersen et al., "The balanced accuracy and its
    posterior distribution", 2010).

    Raises:
        ValueError: there are no questions, or not as many of both.
    """
    if not right:
        raise ValueError("no questions have no balanced accuracy")
    hits: dict[int, list[bool]] = defaultdict(list)
    for expected, said in zip(right, chosen, strict=True):
        hits[expected].append(said == expected)
    return sum(sum(of_letter) / len(of_letter) for _, of_letter in sorted(hits.items())) / len(hits)

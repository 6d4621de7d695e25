"""Checks for leaks: how well the class of an answer is predicted from the question alone.

If the question reveals the class, a model learns to ignore the series and is still rewarded. Clues are the facts in the
question (the channel, the requirement, the length, ...), alone and in pairs, and its wording. Each clue is a table from
its value to the most frequent class. The clue is selected and its table is fitted on one half of the samples and scored
on the other half, so that testing many clues does not produce false positives.
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

from datamodules.temporal.timelines.reports.sample_view import SampleView

BINS = 8  # quantile bins of a numeric clue
SUSPICIOUS = 3.0  # standard errors


class Leak(NamedTuple):
    """Predictive value of the best clue for the class of one task."""

    task: str
    samples: int  # samples on which the guess was scored
    majority: float  # accuracy of the most frequent class
    guess: float  # accuracy of the best clue
    clue: str
    standard_error: float  # standard error of `guess`

    @property
    def suspicious(self) -> bool:
        """Whether the clue is significantly better than the majority class."""
        return self.guess - self.majority > SUSPICIOUS * self.standard_error


def check_leaks(samples: Iterable[SampleView]) -> list[Leak]:
    """Return one entry per task with at least two classes and two samples per class on average."""
    tasks: dict[str, list[SampleView]] = defaultdict(list)
    for sample in samples:
        if sample.truth_class is not None:
            tasks[sample.task].append(sample)
    return [
        _check(task, group)
        for task, group in sorted(tasks.items())
        if len(group) >= 2 * len({sample.truth_class for sample in group}) >= 4
    ]


def _check(task: str, samples: list[SampleView]) -> Leak:
    classes = np.array([sample.truth_class for sample in samples])
    # Even samples select and fit a clue, odd samples score it.
    first = np.arange(len(samples)) % 2 == 0
    best, clue = -1.0, ""
    clues = _clues(samples)
    for name, values in clues.items():
        # Clues are selected by cross-validation between the two quarters of the first half.
        quarter = first & (np.arange(len(samples)) % 4 == 0)
        score = _score(values, classes, quarter, first & ~quarter) + _score(values, classes, first & ~quarter, quarter)
        if score > best:
            best, clue = score, name
    guess = _score(clues[clue], classes, first, ~first)
    majority = max(Counter(classes.tolist()).values()) / len(classes)
    # Standard error of a proportion; the floor avoids 0, at which any difference would be significant.
    error = float(np.sqrt(max(guess * (1 - guess), 1e-12) / (~first).sum()))
    return Leak(task, int((~first).sum()), majority, guess, clue, error)


def _clues(samples: Sequence[SampleView]) -> dict[str, list[Hashable]]:
    """Return {name: value of the clue in each sample}; numbers are binned."""
    single: dict[str, list[Hashable]] = {}
    for name in sorted({name for sample in samples for name in sample.asked}):
        single[name] = _bin_values([sample.asked.get(name) for sample in samples])
    pairs: dict[str, list[Hashable]] = {
        f"{a} and {b}": list(zip(single[a], single[b], strict=True)) for a, b in combinations(single, 2)
    }
    wording: list[Hashable] = [
        "".join("0" if letter.isdigit() else letter for letter in sample.question) for sample in samples
    ]
    return {**single, **pairs, "wording": wording}


def _bin_values(values: list[float | str | None]) -> list[Hashable]:
    numbers = np.array([value for value in values if isinstance(value, (int, float))], np.float64)
    # Few distinct numbers are categories already.
    if len(np.unique(numbers)) <= BINS:
        return list(values)
    edges = np.quantile(numbers, np.arange(1, BINS) / BINS)
    return [int(np.searchsorted(edges, value)) if isinstance(value, (int, float)) else value for value in values]


def _score(values: list[Hashable], classes: np.ndarray, is_known: np.ndarray, queried: np.ndarray) -> float:
    """Return the accuracy on `queried` with the table fitted on `known`; unseen values get the most frequent class."""
    table: dict[Hashable, Counter[str]] = defaultdict(Counter)
    for index in np.flatnonzero(is_known):
        table[values[index]][classes[index]] += 1
    most_frequent = Counter(classes[is_known].tolist()).most_common(1)[0][0]
    guesses = {value: counts.most_common(1)[0][0] for value, counts in table.items()}
    right = [guesses.get(values[index], most_frequent) == classes[index] for index in np.flatnonzero(queried)]
    return float(np.mean(right))

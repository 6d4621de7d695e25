"""How well the class of an answer is guessed from the question alone.

A data set in which the question gives the class away teaches a model to ignore the series, and praises one that does.
Clues are what the question says (the channel, the requirement, the length, ...), alone and in pairs, and its wording.
Each is a table: value of the clue -> most frequent class. The clue is chosen and its table made on one half of the
samples, and scored on the other half, so that trying many clues does not look like a leak.
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

from datamodules.temporal.shown import Shown

BINS = 8  # of a numeric clue, each with as many samples
SUSPICIOUS = 3.0  # standard errors


class Leak(NamedTuple):
    """What the best clue gives away of one task's class."""

    task: str
    samples: int  # on which the guess was scored
    majority: float  # share right by always saying the most frequent class
    guess: float  # share right by the best clue
    clue: str
    standard_error: float  # of `guess`

    @property
    def suspicious(self) -> bool:
        """Whether the clue is better than the majority by more than chance explains."""
        return self.guess - self.majority > SUSPICIOUS * self.standard_error


def check_leaks(samples: Iterable[Shown]) -> list[Leak]:
    """One entry for each task with at least two classes and two samples of each on average."""
    tasks: dict[str, list[Shown]] = defaultdict(list)
    for sample in samples:
        if sample.truth_class is not None:
            tasks[sample.task].append(sample)
    return [
        _check(task, group)
        for task, group in sorted(tasks.items())
        if len(group) >= 2 * len({sample.truth_class for sample in group}) >= 4
    ]


def _check(task: str, samples: list[Shown]) -> Leak:
    classes = np.array([sample.truth_class for sample in samples])
    first = np.arange(len(samples)) % 2 == 0
    best, clue = -1.0, ""
    clues = _clues(samples)
    for name, values in clues.items():
        # Within the first half, one quarter of the samples chooses for the other.
        quarter = first & (np.arange(len(samples)) % 4 == 0)
        score = _score(values, classes, quarter, first & ~quarter) + _score(values, classes, first & ~quarter, quarter)
        if score > best:
            best, clue = score, name
    guess = _score(clues[clue], classes, first, ~first)
    majority = max(Counter(classes.tolist()).values()) / len(classes)
    error = float(np.sqrt(max(guess * (1 - guess), 1e-12) / (~first).sum()))
    return Leak(task, int((~first).sum()), majority, guess, clue, error)


def _clues(samples: Sequence[Shown]) -> dict[str, list[Hashable]]:
    """{name: its value in each sample}; numbers in bins."""
    single: dict[str, list[Hashable]] = {}
    for name in sorted({name for sample in samples for name in sample.asked}):
        single[name] = _binned([sample.asked.get(name) for sample in samples])
    pairs = {f"{a} and {b}": list(zip(single[a], single[b], strict=True)) for a, b in combinations(single, 2)}
    wording = ["".join("0" if letter.isdigit() else letter for letter in sample.question) for sample in samples]
    return {**single, **pairs, "wording": wording}


def _binned(values: list[float | str | None]) -> list[Hashable]:
    numbers = np.array([value for value in values if isinstance(value, (int, float))], np.float64)
    if len(np.unique(numbers)) <= BINS:
        return list(values)
    edges = np.quantile(numbers, np.arange(1, BINS) / BINS)
    return [int(np.searchsorted(edges, value)) if isinstance(value, (int, float)) else value for value in values]


def _score(values: list[Hashable], classes: np.ndarray, known: np.ndarray, asked: np.ndarray) -> float:
    """Share right on `asked` with the table of `known`; the most frequent class of all where the table is empty."""
    table: dict[Hashable, Counter[str]] = defaultdict(Counter)
    for index in np.flatnonzero(known):
        table[values[index]][classes[index]] += 1
    usual = Counter(classes[known].tolist()).most_common(1)[0][0]
    guesses = {value: counts.most_common(1)[0][0] for value, counts in table.items()}
    right = [guesses.get(values[index], usual) == classes[index] for index in np.flatnonzero(asked)]
    return float(np.mean(right))

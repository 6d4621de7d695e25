"""Which samples of an evaluation are shown: a few, the same ones each time and on any number of processes."""

from collections.abc import Iterable
from typing import Generic, TypeVar

import numpy as np

from engine.gather import gathered_objects
from engine.randomness import hash_bits

MOST_SHOWN = 8
"""Samples of an evaluation that are shown, at most."""

_CHOICE = 0x5404  # this choice's name beside others that hash a sample's number

Content = TypeVar("Content")


def chosen(samples: Iterable[int], number: int) -> list[int]:
    """`number` of the samples, or all if there are fewer, ascending.

    A hash of their numbers decides: the first ones of a folder of images are all of one class. So it does not matter
    in which order they come and which process has them.
    """
    numbers = np.array(sorted(samples), np.int64)
    first = np.argsort(hash_bits(_CHOICE, numbers), kind="stable")[:number]
    return sorted(numbers[first].tolist())


class ShownSamples(Generic[Content]):
    """Keeps of what an evaluation computes as much as is shown, while it comes.

    Attributes:
        number: samples that are wanted; 0: whoever evaluates need not keep anything.
    """

    def __init__(self) -> None:
        self.number = 0
        self._kept: dict[int, Content] = {}

    def forget(self) -> None:
        """An evaluation begins."""
        self._kept = {}

    def places(self, samples: list[int]) -> list[int]:
        """Those of a batch's rows to keep, as far as can be known by now.

        Args:
            samples: of each row its sample; below 0 for a row that holds none.
        """
        if not self.number:
            return []
        real = {sample: place for place, sample in enumerate(samples) if sample >= 0}
        best = chosen([*real, *self._kept], self.number)
        return [real[sample] for sample in best if sample in real]

    def keep(self, sample: int, content: Content) -> None:
        """Of one of the `places`; it must be possible to pickle the content, and should be small."""
        self._kept[sample] = content
        best = chosen(self._kept, self.number)
        self._kept = {sample: content for sample, content in self._kept.items() if sample in best}

    def of_all_processes(self) -> list[tuple[int, Content]]:
        """(sample, content), ascending, the same on all processes. Every process must ask."""
        found = {sample: content for process in gathered_objects(self._kept) for sample, content in process.items()}
        return [(sample, found[sample]) for sample in chosen(found, self.number)]

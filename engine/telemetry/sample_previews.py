"""Keeps previews of an evaluation: a few samples, each with the model's answer.

The same samples are selected at every evaluation and on any number of ranks.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from engine.determinism.stateless_rng import hash_bits
from engine.distributed.collectives import all_gather_objects

MAX_PREVIEWS = 8
"""Largest number of previews of an evaluation."""

_HASH_STREAM = 0x5404  # separates this choice from other hashes of sample numbers

Content = TypeVar("Content")


class SamplePreview(NamedTuple):
    """A sample and the model's answer. Texts are plain text in the user's language and may have several lines."""

    name: str
    """Name of the sample, the same at every evaluation."""
    question: str
    """The model's input: a user's last items, a question, ... . Of an image, what `picture` does not show."""
    expected: str
    answer: str
    right: bool | None = None
    """None if an answer is neither right nor wrong."""
    picture: bytes | None = None
    """A PNG file of the image, the page or the curves."""
    blind: str | None = None
    """The model's answer without the picture; None if it is not computed."""


def select_preview_ids(samples: Iterable[int], number: int) -> list[int]:
    """Return `number` of the samples, or all of them if there are fewer, in ascending order.

    A hash of the sample numbers decides, because the first images of a folder are often all of one class. The choice
    depends neither on the order of the samples nor on the rank that holds them.
    """
    ids = np.array(sorted(samples), np.int64)
    order = np.argsort(hash_bits(_HASH_STREAM, ids), kind="stable")[:number]
    return sorted(ids[order].tolist())


class PreviewReservoir(Generic[Content]):
    """Keeps the content of previews while an evaluation runs.

    Attributes:
        number: number of previews; 0 if none are needed.
    """

    def __init__(self) -> None:
        self.number = 0
        self._kept: dict[int, Content] = {}

    def reset(self) -> None:
        """Drop all content at the start of an evaluation."""
        self._kept = {}

    def rows_to_keep(self, samples: list[int]) -> list[int]:
        """Return the rows of a batch whose samples are among the best candidates so far.

        Args:
            samples: sample of each row, negative for padding.
        """
        if not self.number:
            return []
        row_of_sample = {sample: row for row, sample in enumerate(samples) if sample >= 0}
        # Only candidates that may still be chosen are kept, so that a batch copies few contents to the host.
        best = select_preview_ids([*row_of_sample, *self._kept], self.number)
        return [row_of_sample[sample] for sample in best if sample in row_of_sample]

    def keep(self, sample: int, content: Content) -> None:
        """Keep the content of a sample of `rows_to_keep`. It must be picklable and should be small."""
        self._kept[sample] = content
        best = select_preview_ids(self._kept, self.number)
        self._kept = {sample: content for sample, content in self._kept.items() if sample in best}

    def gather(self) -> list[tuple[int, Content]]:
        """Return (sample, content) of all ranks, in ascending order, the same on every rank. A collective."""
        # Each rank has kept the best of its own samples, and the best of all are among them.
        gathered = {
            sample: content for contents in all_gather_objects(self._kept) for sample, content in contents.items()
        }
        return [(sample, gathered[sample]) for sample in select_preview_ids(gathered, self.number)]

    def previews(self, render: Callable[[int, Content], SamplePreview]) -> list[Callable[[], SamplePreview]]:
        """Return functions that render the gathered (sample, content), for `sample_previews`. A collective."""
        return [partial(render, *kept) for kept in self.gather()]

"""Timelines that get harder from epoch to epoch: a small model learns to read numbers sooner from short ones."""

from dataclasses import dataclass, replace
from functools import cached_property

from datamodules.temporal.curves import FEWEST_STEPS
from datamodules.temporal.notation import Notation
from datamodules.temporal.samples import Split, Synthesis, TimelineSample


@dataclass(frozen=True)
class Curriculum:
    """In epoch 0 timelines have a quarter of their length and only the channel that is asked about; from epoch
    `easy_epochs` on they are the synthesis's. A sample is a function of (seed, split, epoch, index), as there.
    """

    synthesis: Synthesis
    easy_epochs: int

    @property
    def notation(self) -> Notation:
        """What the texts are written in."""
        return self.synthesis.notation

    def sample(self, split: Split, epoch: int, index: int) -> TimelineSample:
        """See `Synthesis.sample`."""
        return self._of_epoch[min(epoch, self.easy_epochs)].sample(split, epoch, index)

    @cached_property
    def _of_epoch(self) -> list[Synthesis]:
        return [self._eased(1 - epoch / self.easy_epochs) for epoch in range(self.easy_epochs)] + [self.synthesis]

    def _eased(self, ease: float) -> Synthesis:
        shortest = max(FEWEST_STEPS, round(self.synthesis.min_steps * (1 - 0.375 * ease)))
        longest = max(shortest, round(self.synthesis.max_steps * (1 - 0.75 * ease)))
        alone = max(ease, self.synthesis.alone_probability)
        return replace(self.synthesis, min_steps=shortest, max_steps=longest, alone_probability=alone)

"""Makes timelines harder each epoch, since a small model learns to read numbers from short timelines first."""

from dataclasses import dataclass, replace
from functools import cached_property

from datamodules.multimodal.synthetic_split import Split
from datamodules.temporal.timelines.synthetic.curves import MIN_STEPS
from datamodules.temporal.timelines.synthetic.sample_builder import TimelineSample
from datamodules.temporal.timelines.synthetic.synthetic_timelines import SyntheticTimelines
from datamodules.temporal.timelines.text.number_format import Notation


@dataclass(frozen=True)
class Curriculum:
    """Timelines that become harder until epoch `easy_epochs`; from then on they follow the configured synthesis.

    In epoch 0 they have a quarter of the length and the queried channel only. A sample is a pure function of (seed,
    split, epoch, index).
    """

    synthesis: SyntheticTimelines
    easy_epochs: int

    @property
    def notation(self) -> Notation:
        """Notation of the texts."""
        return self.synthesis.notation

    def sample(self, split: Split, epoch: int, index: int) -> TimelineSample:
        """Return a sample, see `SyntheticTimelines.sample`."""
        return self._settings_by_epoch[min(epoch, self.easy_epochs)].sample(split, epoch, index)

    @cached_property
    def _settings_by_epoch(self) -> list[SyntheticTimelines]:
        return [self._ease(1 - epoch / self.easy_epochs) for epoch in range(self.easy_epochs)] + [self.synthesis]

    def _ease(self, ease: float) -> SyntheticTimelines:
        shortest = max(MIN_STEPS, round(self.synthesis.min_steps * (1 - 0.375 * ease)))
        longest = max(shortest, round(self.synthesis.max_steps * (1 - 0.75 * ease)))
        alone = max(ease, self.synthesis.alone_probability)
        return replace(self.synthesis, min_steps=shortest, max_steps=longest, alone_probability=alone)

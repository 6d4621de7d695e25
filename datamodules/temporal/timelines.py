"""The same questions about timelines that somebody recorded."""

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from datamodules.temporal.asking import Wish, agrees, wish
from datamodules.temporal.channels import CHANNELS, KEYS, Scale
from datamodules.temporal.notation import Notation
from datamodules.temporal.patterns import integer
from datamodules.temporal.recordings import Recording, read
from datamodules.temporal.samples import Split, Synthesis, TimelineSample, compose
from engine.randomness import hash_bits

_STREAM = 0x4EC0  # this generator's name beside whatever else hashes the same seed
_TRIES = 200  # windows that are looked at before one is taken that does not agree with the wish
_ENOUGH = 0.6  # share of a window's samples that a channel must have to be asked about

Window = tuple[Recording, slice]


@dataclass(frozen=True)
class RecordedTimelines:
    """Windows of recorded timelines, and questions about them; a sample depends on (seed, split, epoch, index) alone.

    The windows of all splits come from the same recordings: for evaluation.

    Args:
        path: an .npz file of pods (GenTD26), a .csv file (time_ms and available resources) or a folder of such.
        questions: format, task_mix, min_steps, max_steps, seed and series_position are taken from it.
        capacities: of the .csv files' channels, in their units; see `recordings.read_csv`.
        balanced: look for windows that give the classes of trends and of feasibility in equal parts. Without it they
            come as often as they do in the recordings, where most of the time nothing happens.
    """

    path: Path
    questions: Synthesis = field(default_factory=Synthesis)
    capacities: dict[str, float] | None = None
    balanced: bool = True

    @cached_property
    def recordings(self) -> list[Recording]:
        """What is long enough.

        Raises:
            ValueError: a file cannot be read, no timeline is long enough, or their steps differ.
        """
        every = read(self.path, self.capacities)
        long = [recording for recording in every if len(recording.shares) >= self.questions.min_steps]
        if not long:
            longest = max(len(recording.shares) for recording in every)
            raise ValueError(
                f"{self.path}: the longest timeline has {longest} steps, expected min_steps "
                f"({self.questions.min_steps}) or more"
            )
        lengths = sorted({recording.step_ms for recording in long})
        if len(lengths) > 1:
            raise ValueError(f"{self.path}: found steps of {', '.join(map(str, lengths))} ms, expected one length")
        return long

    @cached_property
    def notation(self) -> Notation:
        """What the texts are written in."""
        return self.questions.notation._replace(step_ms=self.recordings[0].step_ms)

    def sample(self, split: Split, epoch: int, index: int) -> TimelineSample:
        """One window and a question about a channel that is there.

        Raises:
            ValueError: no channel of the recordings has enough samples in a row to be asked about.
        """
        random = np.random.Generator(
            np.random.Philox(key=int(hash_bits(self.questions.seed, _STREAM, split, epoch, index)))
        )
        measured = self._measured
        asked = measured[integer(random, 0, len(measured) - 1)]
        wished = wish(random, self.questions.task(random.random()), self.notation.format)
        steps = integer(random, self.questions.min_steps, self.questions.max_steps)
        recording, window = self._window(random, asked, wished, steps)
        shares = recording.shares[window]
        present = ~np.isnan(shares)
        return compose(
            random,
            wished,
            asked,
            np.nan_to_num(shares),
            present,
            recording.capacities,
            self.notation,
            self.questions.series_position,
        )

    @cached_property
    def _measured(self) -> list[int]:
        """Channels that some recording has."""
        measured = [
            k
            for k in range(len(CHANNELS))
            if any(np.mean(~np.isnan(recording.shares[:, k])) >= _ENOUGH for recording in self.recordings)
        ]
        if not measured:
            raise ValueError(f"{self.path}: no channel has {_ENOUGH:.0%} of its samples, there is nothing to ask about")
        return measured

    def _window(self, random: np.random.Generator, asked: int, wished: Wish, steps: int) -> Window:
        """A window in which the channel is there, one that agrees with the wish if it is found."""
        some: Window | None = None
        for _ in range(_TRIES):
            recording = self.recordings[integer(random, 0, len(self.recordings) - 1)]
            length = min(steps, len(recording.shares))
            start = integer(random, 0, len(recording.shares) - length)
            window = slice(start, start + length)
            column = recording.shares[window, asked]
            present: NDArray[np.bool_] = ~np.isnan(column)
            if present.mean() < _ENOUGH:
                continue
            scale = Scale.of(CHANNELS[asked], self.notation.format, recording.capacities[asked])
            some = recording, window
            if not self.balanced or agrees(wished, scale.levels(np.nan_to_num(column)), present, scale.top):
                return some
        if some is None:
            raise ValueError(
                f"{self.path}: none of {_TRIES} windows of {steps} steps has {_ENOUGH:.0%} of the samples of "
                f"{KEYS[asked]}"
            )
        return some

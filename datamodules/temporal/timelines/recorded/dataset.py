"""Samples questions about windows of recorded timelines."""

import logging
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from datamodules.multimodal.synthetic_split import Split
from datamodules.temporal.timelines.channels import CHANNELS, KEYS, Scale
from datamodules.temporal.timelines.recorded.recording import Recording
from datamodules.temporal.timelines.recorded.recording_reader import read
from datamodules.temporal.timelines.synthetic.question_sampler import QuestionSpec, draw_spec, matches
from datamodules.temporal.timelines.synthetic.sample_builder import TimelineSample, build_sample
from datamodules.temporal.timelines.synthetic.synthetic_timelines import SyntheticTimelines
from datamodules.temporal.timelines.text.number_format import Notation
from engine.determinism.scalar_draws import integer
from engine.determinism.stateless_rng import hash_bits
from engine.io.json_records import describe_names

_STREAM = 0x4EC0  # hash key of this generator
_TRIES = 200  # windows to draw before a window that does not match the specification is used
_ENOUGH = 0.6  # minimum share of present samples of a channel in a window

Window = tuple[Recording, slice]

log = logging.getLogger("lockstep")


@dataclass(frozen=True)
class RecordedTimelines:
    """Windows of recorded timelines with questions; a sample is a pure function of (seed, split, epoch, index).

    The windows of all splits come from the same recordings, which are therefore for evaluation only.

    Args:
        path: an .npz file of pods (GenTD26), a .csv file (time_ms and available resources) or a folder of .csv files.
        questions: source of format, task_mix, min_steps, max_steps, seed and series_position.
        capacities: capacities of the .csv files' channels, in their units; see `csv_file.read_csv`.
        balanced: search for windows that balance the classes of trends and of feasibility. Otherwise the classes are as
            frequent as in the recordings, where most windows are stable.
        step_ms: duration of a step that .csv files with irregular times are resampled to; None for regular times.
    """

    path: Path
    questions: SyntheticTimelines = field(default_factory=SyntheticTimelines)
    capacities: dict[str, float] | None = None
    balanced: bool = True
    step_ms: int | None = None

    @cached_property
    def recordings(self) -> list[Recording]:
        """Recordings of sufficient length; the others are named in a warning.

        Raises:
            ValueError: a file is invalid, no timeline is long enough, or the steps differ.
        """
        recordings = read(self.path, self.capacities, self.step_ms)
        long = [recording for recording in recordings if len(recording.shares) >= self.questions.min_steps]
        if not long:
            longest = max((len(recording.shares) for recording in recordings), default=0)
            raise ValueError(
                f"{self.path}: the longest timeline has {longest} steps, expected min_steps "
                f"({self.questions.min_steps}) or more"
            )
        if short := [recording.name for recording in recordings if len(recording.shares) < self.questions.min_steps]:
            log.warning(
                "%s: %d of %d timelines have less than min_steps (%d) and are not used: %s",
                self.path, len(short), len(recordings), self.questions.min_steps, describe_names(short),
            )  # fmt: skip
        lengths = sorted({recording.step_ms for recording in long})
        if len(lengths) > 1:
            raise ValueError(f"{self.path}: found steps of {', '.join(map(str, lengths))} ms, expected one length")
        return long

    def check(self) -> None:
        """Read the files and check that every question has a window, so that no sample fails later.

        Raises:
            ValueError: see `recordings`; or no channel has enough samples.
            OSError: a file cannot be read.
        """
        self._measured_channels  # noqa: B018  (a cached property)

    @cached_property
    def notation(self) -> Notation:
        """Notation of the texts."""
        return self.questions.notation._replace(step_ms=self.recordings[0].step_ms)

    def sample(self, split: Split, epoch: int, index: int) -> TimelineSample:
        """Return a window with a question about a measured channel.

        Raises:
            ValueError: no channel of the recordings has enough samples.
        """
        # A generator for each sample, keyed by its coordinates, so that samples do not depend on the order of reading.
        random = np.random.Generator(
            np.random.Philox(key=int(hash_bits(self.questions.seed, _STREAM, split, epoch, index)))
        )
        measured = self._measured_channels
        queried = measured[integer(random, 0, len(measured) - 1)]
        spec = draw_spec(random, self.questions.task(random.random()), self.notation.format)
        steps = integer(random, self.questions.min_steps, self.questions.max_steps)
        recording, window = self._window(random, queried, spec, steps)
        shares = recording.shares[window]
        present = ~np.isnan(shares)
        return build_sample(
            random=random,
            spec=spec,
            channel=queried,
            shares=np.nan_to_num(shares),
            present=present,
            capacities=recording.capacities,
            notation=self.notation,
            series_position=self.questions.series_position,
        )

    @cached_property
    def _measured_channels(self) -> list[int]:
        """Indices of the channels with enough samples in a recording, and in a window of min_steps."""
        # Largest share over the recordings, [4].
        shares = np.array([np.mean(~np.isnan(recording.shares), 0) for recording in self.recordings]).max(0)
        measured = [
            k
            for k in range(len(CHANNELS))
            if shares[k] >= _ENOUGH and self._fullest(k, self.questions.min_steps)[1] >= _ENOUGH
        ]
        if not measured:
            worst = int(shares.argmax())
            raise ValueError(
                f"{self.path}: no channel has {_ENOUGH:.0%} of its samples; expected at least one, the fullest is "
                f"{KEYS[worst]} with {shares[worst]:.0%}. Look for gaps and steps of unequal length"
            )
        return measured

    def _window(self, random: np.random.Generator, queried: int, spec: QuestionSpec, steps: int) -> Window:
        """Draw a window with enough samples of the channel, preferably a window that matches the specification."""
        fallback: Window | None = None
        for _ in range(_TRIES):
            recording = self.recordings[integer(random, 0, len(self.recordings) - 1)]
            length = min(steps, len(recording.shares))
            start = integer(random, 0, len(recording.shares) - length)
            window = slice(start, start + length)
            column = recording.shares[window, queried]
            present: NDArray[np.bool_] = ~np.isnan(column)
            if present.mean() < _ENOUGH:
                continue
            scale = Scale.for_channel(CHANNELS[queried], self.notation.format, recording.capacities[queried])
            fallback = recording, window
            if not self.balanced or matches(spec, scale.levels(np.nan_to_num(column)), present, scale.top):
                return fallback
        if fallback is None:
            # Windows with enough samples are rare: look for them instead of drawing.
            fallback, share = self._fullest(queried, steps)
            if share < _ENOUGH:
                fallback, _ = self._fullest(queried, self.questions.min_steps)
        return fallback

    def _fullest(self, channel: int, steps: int) -> tuple[Window, float]:
        """Return the window of a length with the most samples of a channel, and the share that it has."""
        best: tuple[Window, float] | None = None
        for recording in self.recordings:
            length = min(steps, len(recording.shares))
            # Differences of cumulated counts are the counts of all windows of this length.
            counts = np.concatenate([[0], np.cumsum(~np.isnan(recording.shares[:, channel]))])
            windows = counts[length:] - counts[:-length]
            start = int(windows.argmax())
            share = float(windows[start] / length)
            if best is None or share > best[1]:
                best = (recording, slice(start, start + length)), share
        assert best is not None  # there is a recording
        return best

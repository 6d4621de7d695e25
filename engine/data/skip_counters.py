"""Counts skipped samples over all ranks, and logs each on the rank that skips it."""

import hashlib
import logging
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from engine.data.sample_loading import SkippedSample
from engine.distributed.collectives import all_gather_tensor
from engine.distributed.errors import CollectiveInputError
from engine.distributed.step_counters import StepCounters
from engine.telemetry.log_events import event

REASONS = ("bad", "too_long")
"""Counted reasons of a SkippedSample. Samples that the user accepted before the run are not counted."""

_STATE_KEYS = {"bad": "unusable", "too_long": "too_long"}
"""{reason: key in the state of a checkpoint}; checkpoints keep the names of version 0.1.0."""

_MAX_LOGGED = 20  # bad samples that each rank logs as errors

log = logging.getLogger("lockstep")


def skipped_in(batch: object) -> list[SkippedSample]:
    """Return the skipped samples that a micro-batch, or each part of it, lists in its field `skipped`."""
    if hasattr(batch, "skipped"):
        return list(batch.skipped)
    parts = batch if isinstance(batch, (list, tuple)) else ()
    return [skip for part in parts for skip in getattr(part, "skipped", ())]


class SkipCounter:
    """Counts the samples that a training skips, each time that they are drawn.

    The counts travel with the step counters, so every rank has them without a further collective. Reading them waits
    for the device.

    Attributes:
        different: digest of each bad sample that was passed to `record_bad`.
    """

    def __init__(self, counters: StepCounters) -> None:
        self._counters = counters
        self._resumed = dict.fromkeys(REASONS, 0)
        self.different: set[str] = set()

    def register(self) -> None:
        """Register the counters on every rank, before training."""
        for reason in REASONS:
            self._counters.register(_counter(reason))

    def add(self, skipped: Iterable[SkippedSample]) -> None:
        """Count the skipped samples of a micro-batch. The totals include them after the step's backward pass."""
        for skip in skipped:
            self._counters.add(_counter(skip.reason))

    @property
    def totals(self) -> dict[str, int]:
        """Counts of all ranks since the start of the training, also before a resume; equal on all ranks."""
        return {reason: self._resumed[reason] + int(self._counters.total(_counter(reason))) for reason in REASONS}

    def record_bad(self, samples_by_rank: Iterable[Iterable[SkippedSample]]) -> None:
        """Record the bad samples of each rank. Every rank must pass the same."""
        for skip in (skip for skipped in samples_by_rank for skip in skipped):
            # A digest instead of the text: the state of a checkpoint holds up to `max_bad_samples` of them.
            what = f"{skip.sample} {skip.what}".encode(errors="backslashreplace")  # of a file name that is not UTF-8
            self.different.add(hashlib.blake2b(what, digest_size=8).hexdigest())

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        totals = {_STATE_KEYS[reason]: total for reason, total in self.totals.items()}
        return {**totals, "different": sorted(self.different)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state of a checkpoint. Missing keys count as 0."""
        self._resumed = {reason: state.get(key, 0) for reason, key in _STATE_KEYS.items()}
        self.different = set(state.get("different", ()))


class EvaluationSkipCounter:
    """Counts the samples that an evaluation skips."""

    def __init__(self) -> None:
        self._counts = dict.fromkeys(REASONS, 0)

    def add(self, skipped: Iterable[SkippedSample]) -> None:
        """Count the skipped samples of a batch."""
        for skip in skipped:
            if skip.reason in self._counts:
                self._counts[skip.reason] += 1

    def totals(self, device: torch.device) -> dict[str, int]:
        """Return the counts of all ranks. A collective."""
        counts = all_gather_tensor(torch.tensor(list(self._counts.values()), device=device)).sum(0)
        return dict(zip(REASONS, counts.tolist(), strict=True))


class SkipLogger:
    """Logs each skipped sample on the rank that skips it, because no other rank has its name."""

    def __init__(self) -> None:
        self._logged = 0

    def log(self, skipped: Iterable[SkippedSample]) -> None:
        """Log the first bad samples of this rank as errors, all others for debugging."""
        for skip in skipped:
            self._log(skip)

    def _log(self, skip: SkippedSample) -> None:
        if skip.reason in ("too_long", "accepted"):
            log.debug("skipped: %s", skip.what)
            return
        self._logged += 1
        # The console shows only errors of ranks other than 0.
        level = logging.ERROR if self._logged <= _MAX_LOGGED else logging.DEBUG
        log.log(level, "skipped: %s", skip.what, extra=event("sample_skipped", sample=skip.sample, reason=skip.reason))
        if self._logged == _MAX_LOGGED:
            log.error("further bad samples of this rank are logged at level debug only; .../bad_samples counts them")


def check_skip_limit(bad: int, limit: int, where: str) -> None:
    """Check the number of bad samples against the limit.

    Args:
        bad: number of bad samples of all ranks.
        limit: largest number allowed, `data.max_bad_samples`.
        where: part of the run, for the message, e.g. `the training`.

    Raises:
        CollectiveInputError: the limit is exceeded. All ranks raise it, as the counts are equal.
    """
    if bad > limit:
        raise CollectiveInputError(
            f"{bad} samples of {where} cannot be used, but data.init_args.max_bad_samples is {limit}. They are "
            "named above, each by the rank that skipped it, and in bad_samples.jsonl: fix the data, or raise the limit"
        )


def _counter(reason: str) -> str:
    return f"skipped/{reason}"

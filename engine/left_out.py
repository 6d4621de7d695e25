"""Samples that were drawn and are in no batch: named where they were met, counted over all processes."""

import hashlib
import logging
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from engine.bad_samples import LeftOut
from engine.events import event
from engine.faults import AgreedFailure
from engine.gather import gathered
from engine.votes import Votes

REASONS = ("unusable", "too_long")

_NAMED = 20
"""Unusable samples that each process names aloud."""

log = logging.getLogger("lockstep")


def left_out_of(batch: Any) -> list[LeftOut]:
    """What a micro-batch, or each part of one in parts, says itself that it leaves out, as `left_out`."""
    if hasattr(batch, "left_out"):
        return list(batch.left_out)
    parts = batch if isinstance(batch, (list, tuple)) else ()
    return [one for part in parts for one in getattr(part, "left_out", ())]


class LeftOutSamples:
    """The samples that a training has left out. In the totals a sample is counted each time that it is drawn.

    The counts travel with the step's votes, so they are at hand on every process and cost no collective; reading them
    waits for the device.

    Attributes:
        different: a digest of each unusable sample of which all processes have been told, see `tell`.
    """

    def __init__(self, votes: Votes) -> None:
        self._votes = votes
        self._before = dict.fromkeys(REASONS, 0)
        self.different: set[str] = set()

    def open(self) -> None:
        """On every process, before training."""
        for reason in REASONS:
            self._votes.open(_vote(reason))

    def cast(self, left_out: Iterable[LeftOut]) -> None:
        """Takes in those of a micro-batch; they are in the totals from the end of the step's backward pass on."""
        for one in left_out:
            self._votes.cast(_vote(one.reason))

    @property
    def totals(self) -> dict[str, int]:
        """Of all processes since the beginning of the training, before a resume, too; equal on all processes."""
        return {reason: self._before[reason] + int(self._votes.total(_vote(reason))) for reason in REASONS}

    def tell(self, everywhere: Iterable[Iterable[LeftOut]]) -> None:
        """Unusable samples of all processes; the same on each of them."""
        for one in (one for of_a_process in everywhere for one in of_a_process):
            self.different.add(hashlib.blake2b(f"{one.sample} {one.what}".encode(), digest_size=8).hexdigest())

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {**self.totals, "different": sorted(self.different)}

    def go_on_from(self, state: Mapping[str, Any]) -> None:
        """What the checkpoint had when it was written."""
        self._before = {reason: state.get(reason, 0) for reason in REASONS}
        self.different = set(state.get("different", ()))


class LeftOutOfEvaluation:
    """The samples that an evaluation has left out, from its beginning on."""

    def __init__(self) -> None:
        self._counts = dict.fromkeys(REASONS, 0)

    def take(self, left_out: Iterable[LeftOut]) -> None:
        """Takes in those of a batch."""
        for one in left_out:
            if one.reason in self._counts:
                self._counts[one.reason] += 1

    def totals(self, device: torch.device) -> dict[str, int]:
        """Of all processes, each of which must ask."""
        counts = gathered(torch.tensor(list(self._counts.values()), device=device)).sum(0)
        return dict(zip(REASONS, counts.tolist(), strict=True))


class Names:
    """Says which samples are left out; on the process that has met them, as no other knows."""

    def __init__(self) -> None:
        self._said = 0

    def say(self, left_out: Iterable[LeftOut]) -> None:
        for one in left_out:
            self._say(one)

    def _say(self, one: LeftOut) -> None:
        if one.reason in ("too_long", "known"):
            log.debug("left out: %s", one.what)
            return
        self._said += 1
        # Of the other processes the console shows errors alone.
        level = logging.ERROR if self._said <= _NAMED else logging.DEBUG
        log.log(level, "left out: %s", one.what, extra=event("sample_left_out", sample=one.sample, reason=one.reason))
        if self._said == _NAMED:
            log.error("further samples of this process that cannot be used are only counted (.../unusable_samples)")


def require_few(unusable: int, most: int, where: str, setting: str) -> None:
    """
    Raises:
        AgreedFailure: more samples than `most` are unusable; on all processes alike, as the counts are.
    """
    if unusable > most:
        raise AgreedFailure(
            f"{unusable} samples of {where} cannot be used, but data.init_args.{setting} is {most}. They are named "
            f"above, each by the process that met it, and in bad_samples.jsonl: mend the data, or raise {setting}"
        )


def _vote(reason: str) -> str:
    return f"left_out/{reason}"

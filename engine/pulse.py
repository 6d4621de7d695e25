"""What a process tells the others about itself, and which process it is that the others wait for."""

import json
import math
from collections.abc import Iterable
from typing import NamedTuple

LEFT = "ended"
"""The phase of a process that has said goodbye."""


class Pulse(NamedTuple):
    """One sign of life."""

    number: int  # counts the signs
    moves: int  # counts what the main thread has done; processes in step have nearly equal numbers
    step: int  # finished optimizer steps
    phase: str  # "start-up", "training", "validation", "saving", ...
    still: float  # seconds since the main thread last moved
    patience: float  # seconds that it may stand still in this phase; infinite: for ever
    where: str  # what the main thread executes: "file.py:12 function"

    def encode(self) -> str:
        return json.dumps(self)

    @classmethod
    def decode(cls, text: bytes) -> "Pulse":
        return cls(*json.loads(text))

    @property
    def stands_still(self) -> bool:
        """Whether it has not moved for longer than it may."""
        return self.phase != LEFT and self.still > self.patience


class Verdict(NamedTuple):
    """Why a run ends: the process that it is about, a sentence, and whether the process is just gone."""

    rank: int
    text: str
    lost: bool = False  # without a word, with its machine perhaps; not by an error that another start would meet again


class Attendance:
    """Hears the pulses of processes and tells who keeps the others waiting.

    Times are seconds on one clock of the process that listens; clocks of different machines are never compared.

    Args:
        processes: how many there are.
        expected: those that have to be heard from now on.
    """

    def __init__(self, processes: int, expected: Iterable[int], now: float) -> None:
        expected = set(expected)
        self._heard = {rank: now if rank in expected else math.inf for rank in range(processes)}
        self._pulses: dict[int, Pulse | None] = dict.fromkeys(range(processes))

    def hear(self, rank: int, pulse: Pulse, now: float) -> None:
        """Takes note of what stands in the store; a pulse that has not changed is no sign of life."""
        known = self._pulses[rank]
        if known is None or pulse.number != known.number:
            self._pulses[rank], self._heard[rank] = pulse, now

    def has_left(self, rank: int) -> bool:
        """Whether a process has said goodbye."""
        pulse = self._pulses[rank]
        return pulse is not None and pulse.phase == LEFT

    def silent(self, now: float, seconds: float) -> Verdict | None:
        """About the processes that have given no sign of life for so long; None when there are none."""
        ranks = [rank for rank, heard in self._heard.items() if now - heard > seconds and not self.has_left(rank)]
        if not ranks:
            return None
        pulse, length = self._pulses[ranks[0]], now - self._heard[ranks[0]]
        seen = f"last seen {_place(pulse)}" if pulse else "and none before"
        return Verdict(ranks[0], f"{_named(ranks)} given no sign of life for {length:.0f} s, {seen}", lost=True)

    def verdict(self, now: float, timeout: float, period: float) -> Verdict | None:
        """About the processes that the others wait for; None when all is well.

        Args:
            timeout: seconds of silence that are too long.
            period: seconds between two pulses.
        """
        pulses = {rank: pulse for rank, pulse in self._pulses.items() if pulse is not None}
        waiting = f"the others wait for it at step {max((pulse.step for pulse in pulses.values()), default=0)}"
        stalled = any(pulse.stands_still for pulse in pulses.values())
        # When some stand still, all do, for they wait for each other: whoever is silent then is the one to blame.
        silent = self.silent(now, min(timeout, 3.5 * period) if stalled else timeout)
        if silent:
            return silent._replace(text=f"{silent.text}; {waiting}")
        if not stalled:
            return None
        least = min(pulse.moves for pulse in pulses.values())
        behind = [rank for rank, pulse in pulses.items() if pulse.moves == least]
        pulse = pulses[behind[0]]
        if any(now - self._heard[rank] > 1.5 * period and not self.has_left(rank) for rank in behind):
            return None  # it may be falling silent, of which a pulse from before says nothing; soon it is known
        if len(behind) == len(pulses):
            places = ", ".join(f"process {rank} in {pulses[rank].where}" for rank in behind[:8])
            text = f"all processes have stood still for {pulse.still:.0f} s at step {pulse.step} ({pulse.phase})"
            return Verdict(behind[0], f"{text}: {places}")
        if pulse.phase == LEFT:
            return Verdict(behind[0], f"{_named(behind)} ended at step {pulse.step}; {waiting}")
        text = f"{_named(behind)} stood still for {pulse.still:.0f} s {_place(pulse)}"
        return Verdict(behind[0], f"{text}; {waiting}")


def _place(pulse: Pulse) -> str:
    return f"at step {pulse.step} ({pulse.phase}), in {pulse.where}"


def _named(ranks: list[int]) -> str:
    if len(ranks) == 1:
        return f"process {ranks[0]} has"
    listed = ", ".join(map(str, ranks[:8])) + (f" and {len(ranks) - 8} more" if len(ranks) > 8 else "")
    return f"processes {listed} have"

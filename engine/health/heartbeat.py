"""Tracks heartbeats of ranks, and diagnoses which rank the other ranks wait for."""

import json
import math
from collections.abc import Iterable
from typing import NamedTuple

from engine.health.exit_codes import ExitCode
from engine.io.name_list import join_names

FINISHED = "ended"
"""Phase of a rank that has ended on purpose; its silence is not a failure."""

_MAX_RANKS = 8  # that a message names


class Heartbeat(NamedTuple):
    """State of a rank, published every second."""

    number: int  # increases with every heartbeat
    progress: int  # actions of the main thread; nearly equal on all ranks that are in step
    step: int  # finished optimizer steps
    phase: str  # "start-up", "training", "validation", "saving", ...
    idle: float  # seconds since the main thread last made progress
    max_idle: float  # seconds that it may be idle in this phase; infinite: no limit
    location: str  # what the main thread executes: "file.py:12 function"

    def encode(self) -> str:
        """Return the heartbeat as text for the store."""
        return json.dumps(self)

    @classmethod
    def decode(cls, text: bytes) -> "Heartbeat":
        """Return the heartbeat that `encode` has written."""
        return cls(*json.loads(text))

    @property
    def is_stalled(self) -> bool:
        """Whether the rank has been idle for longer than its phase allows."""
        return self.phase != FINISHED and self.idle > self.max_idle


class FailureReport(NamedTuple):
    """Why a run ends."""

    rank: int  # the rank that failed; -1 if it is not a rank of the run
    text: str
    lost: bool = False  # the rank vanished, perhaps with its machine; a restart would not meet the same error
    exit_code: int = ExitCode.FAILED  # of all ranks


class HeartbeatTracker:
    """Tracks the heartbeats of ranks and finds the rank that keeps the others waiting.

    All times are seconds on the clock of the tracking rank. Clocks of different machines are never compared.

    Args:
        world_size: number of ranks.
        expected: ranks that must send heartbeats from now on.
        now: current time.
    """

    def __init__(self, world_size: int, expected: Iterable[int], now: float) -> None:
        expected = set(expected)
        self._last_seen = {rank: now if rank in expected else math.inf for rank in range(world_size)}
        self._heartbeats: dict[int, Heartbeat | None] = dict.fromkeys(range(world_size))

    def record(self, rank: int, heartbeat: Heartbeat, now: float) -> None:
        """Record what the store holds for a rank. An unchanged heartbeat does not count as a new heartbeat."""
        # The store keeps the last heartbeat of a dead rank, so only a new number shows that it lives.
        previous = self._heartbeats[rank]
        if previous is None or heartbeat.number != previous.number:
            self._heartbeats[rank], self._last_seen[rank] = heartbeat, now

    def has_left(self, rank: int) -> bool:
        """Return whether a rank has left the run on purpose."""
        heartbeat = self._heartbeats[rank]
        return heartbeat is not None and heartbeat.phase == FINISHED

    def find_silent(self, now: float, seconds: float) -> FailureReport | None:
        """Return a report on the ranks without a heartbeat for more than `seconds`, None if there are none."""
        ranks = [rank for rank, seen in self._last_seen.items() if now - seen > seconds and not self.has_left(rank)]
        if not ranks:
            return None
        heartbeat, silence = self._heartbeats[ranks[0]], now - self._last_seen[ranks[0]]
        last = f"last seen {_describe(heartbeat)}" if heartbeat else "and none before"
        return FailureReport(ranks[0], f"{_subject(ranks)} sent no heartbeat for {silence:.0f} s, {last}", lost=True)

    def diagnose(self, now: float, timeout: float, period: float) -> FailureReport | None:
        """Return a report on the ranks that the others wait for, None if all ranks are healthy.

        Args:
            now: current time of the clock of the tracking rank, in seconds.
            timeout: seconds without a heartbeat after which a rank counts as lost.
            period: seconds between two heartbeats.
        """
        heartbeats = {rank: heartbeat for rank, heartbeat in self._heartbeats.items() if heartbeat is not None}
        step = max((heartbeat.step for heartbeat in heartbeats.values()), default=0)
        waiting = f"the other ranks wait for it at step {step}"
        any_stalled = any(heartbeat.is_stalled for heartbeat in heartbeats.values())
        # Ranks wait for each other, so all stall soon after the first. A rank without a heartbeat is the cause. Three
        # missed heartbeats are enough evidence then; while the others still train, only the whole timeout is.
        silent = self.find_silent(now, min(timeout, 3.5 * period) if any_stalled else timeout)
        if silent:
            return silent._replace(text=f"{silent.text}; {waiting}")
        if not any_stalled:
            return None
        # The rank that the others wait for has made the fewest steps of progress.
        min_progress = min(heartbeat.progress for heartbeat in heartbeats.values())
        behind = [rank for rank, heartbeat in heartbeats.items() if heartbeat.progress == min_progress]
        heartbeat = heartbeats[behind[0]]
        if any(now - self._last_seen[rank] > 1.5 * period and not self.has_left(rank) for rank in behind):
            return None  # this rank may be about to stall: wait until its next heartbeat is due
        if len(behind) == len(heartbeats):
            locations = ", ".join(f"rank {rank} in {heartbeats[rank].location}" for rank in behind[:_MAX_RANKS])
            where = describe_position(heartbeat.step, heartbeat.phase)
            text = f"all ranks have been stalled for {heartbeat.idle:.0f} s {where}: {locations}"
            return FailureReport(behind[0], text)
        if heartbeat.phase == FINISHED:
            return FailureReport(behind[0], f"{_subject(behind)} ended at step {heartbeat.step}; {waiting}")
        text = f"{_subject(behind)} been stalled for {heartbeat.idle:.0f} s {_describe(heartbeat)}"
        return FailureReport(behind[0], f"{text}; {waiting}")


def describe_position(step: int, phase: str) -> str:
    """Return where a rank is in the run."""
    return f"at step {step} ({phase})"


def _describe(heartbeat: Heartbeat) -> str:
    return f"{describe_position(heartbeat.step, heartbeat.phase)}, in {heartbeat.location}"


def _subject(ranks: list[int]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]} has"
    return f"ranks {join_names(ranks, _MAX_RANKS)} have"

"""What log.jsonl tells: what happened to a run, and its attempts, from one start or restart to the next."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from commands.report.figures import UNREADABLE, seconds

KEPT = 300
"""Happenings of a kind that a page holds, at most; the first and the newest are among them."""

_LONGEST = 600
_LONGEST_FIELD = 200
_MOST_FIELDS = 8
_BEGINNINGS = ("run_started", "run_resumed")
_ENDS = ("run_ended", "run_failed", "run_preempted")
_LAST_WORDS = (*_ENDS, "process_lost", "out_of_memory")
_OF_TRAINING = (*_LAST_WORDS, "checkpoint_saved")
_LEVELS = ("warning", "error", "critical")
_PLACE = re.compile(r'"time": ?"([^"]+)".*?"step": ?(\d+|null)')


@dataclass
class Attempt:
    """The training of one start: of what lay between two beginnings."""

    from_step: int
    to_step: int
    began: float  # seconds since 1970
    ended: float
    end: str | None = None
    """The event that ended it, if it was not killed and does not go on."""


@dataclass
class Happenings:
    """All of one run, in the order of their times."""

    events: list[dict[str, Any]] = field(default_factory=list)
    """`{time, step, at, process, level, event, message, fields}`; time in seconds since 1970, event None of a warning.

    What a `test` or another evaluation of the run tells has the `command` among its fields.

    `at` is the step, and of what was said before training went on the step that the training had reached.
    """
    counts: Counter[str] = field(default_factory=Counter)
    """How many there were of each kind, also of those that are not kept."""
    attempts: list[Attempt] = field(default_factory=list)
    logged: bool = False
    """Whether there is a log at all."""


class _Some:
    """Keeps of ever more the first, the newest and those in even distances between."""

    def __init__(self) -> None:
        self.kept: list[dict[str, Any]] = []
        self._newest: dict[str, Any] | None = None
        self._stride = self._seen = 0

    def add(self, item: dict[str, Any]) -> None:
        stride = max(1, self._stride)
        if self._seen % stride == 0:
            if len(self.kept) == KEPT:
                self.kept, stride = self.kept[::2], 2 * stride
            self.kept.append(item)
        self._stride, self._seen, self._newest = stride, self._seen + 1, item

    def all(self) -> list[dict[str, Any]]:
        newest = [] if self._newest is None or self._newest is self.kept[-1] else [self._newest]
        return [*self.kept, *newest]


def read_happenings(folder: Path) -> Happenings:
    """Reads log.jsonl and the log-N.jsonl of other processes, of any length."""
    happenings, kinds = Happenings(), {}
    for path in [folder / "log.jsonl", *sorted(folder.glob("log-*.jsonl"))]:
        if not path.is_file():
            continue
        happenings.logged = True
        attempts = _Attempts() if path.name == "log.jsonl" else None
        reached = 0
        for time, step, record in _records(path):
            reached = reached if step is None else step
            if record is not None:
                record["at"] = reached
                kind = record["event"] or record["level"]
                happenings.counts[kind] += 1
                kinds.setdefault(kind, _Some()).add(record)
            if attempts:
                attempts.see(time, step, record)
        if attempts:
            happenings.attempts = attempts.all
    happenings.events = sorted((item for some in kinds.values() for item in some.all()), key=lambda item: item["time"])
    return happenings


class _Attempts:
    """Finds the attempts in the lines of the first process."""

    def __init__(self) -> None:
        self.all: list[Attempt] = []
        self._trains = False

    def see(self, time: float, step: int | None, record: Mapping[str, Any] | None) -> None:
        """A line: when it was written, at which step, and what it tells if that is kept."""
        event = record["event"] if record else None
        if record and "command" in record["fields"]:
            return
        if event in _BEGINNINGS:
            self.all.append(Attempt(step or 0, step or 0, time, time))
            self._trains = True
        elif self._trains:
            current = self.all[-1]
            # What is at no later step and no event may be of a test of the run, long after it was killed.
            if step is not None and step > current.to_step or event in _OF_TRAINING:
                current.to_step, current.ended, current.end = max(current.to_step, step or 0), time, None
            if event in _LAST_WORDS:
                current.end = event
            self._trains = event not in _ENDS


def _records(path: Path) -> Iterator[tuple[float, int | None, dict[str, Any] | None]]:
    """Of every line time and step, and what it tells if that is an event or a warning.

    Lines that are torn, or not as a run writes them, are passed over.
    """
    with path.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            try:
                if '"event"' in line or any(f'"{level}"' in line for level in _LEVELS):
                    whole = json.loads(line)
                    yield seconds(whole["time"]), _step(whole), _happening(whole)
                elif place := _PLACE.search(line):  # most lines: a step's figures
                    yield seconds(place[1]), None if place[2] == "null" else int(place[2]), None
            except UNREADABLE:
                continue


def _step(line: Mapping[str, Any]) -> int | None:
    """
    Raises:
        ValueError: it is neither an integer nor null.
    """
    step = line.get("step")
    if isinstance(step, bool) or not isinstance(step, int | None):
        raise ValueError(f"a step is an integer or null, found {step!r}")
    return step


def _happening(line: Mapping[str, Any]) -> dict[str, Any] | None:
    fields = dict(line.get("fields") or {})
    event = fields.pop("event", None)
    if event is not None and not isinstance(event, str):
        raise ValueError(f"an event has a name, found {event!r}")
    if fields.get("command") == "fit":
        del fields["command"]
    if event is None and line["level"] not in _LEVELS:
        return None
    return {
        "time": seconds(line["time"]),
        "step": _step(line),
        "process": int(line.get("process") or 0),
        "level": line["level"],
        "event": event,
        "message": _cut(str(line["message"]), _LONGEST),
        "fields": {str(name): _cut(_text(value), _LONGEST_FIELD) for name, value in [*fields.items()][:_MOST_FIELDS]},
    }


def _text(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else value if isinstance(value, str) else json.dumps(value)


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 2] + " …"

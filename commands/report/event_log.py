"""Reads the events of a run from log.jsonl, and its attempts: the training from one start or restart to the next."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from commands.report.metric_series import UNREADABLE, seconds
from engine.io.json_records import parse_json
from engine.number_check import is_integer

KEPT = 300
"""Largest number of events of a kind on a page, including the first and the newest."""

_MAX_LENGTH = 600
_MAX_FIELD_LENGTH = 200
_MAX_FIELDS = 8
_START_EVENTS = ("run_started", "run_resumed")
_END_EVENTS = ("run_ended", "run_failed", "run_preempted")
_FINAL_EVENTS = (*_END_EVENTS, "process_lost", "out_of_memory")
_TRAINING_EVENTS = (*_FINAL_EVENTS, "checkpoint_saved")
_LEVELS = ("warning", "error", "critical")
_RENAMED_EVENTS = {"checkpoint_passed_over": "checkpoint_skipped", "sample_left_out": "sample_skipped"}
"""{name of an event in version 0.1.0: current name}."""

_TIME_AND_STEP = re.compile(r'"time": ?"([^"]+)".*?"step": ?(\d+|null)')


@dataclass
class Attempt:
    """Training between two starts of a run."""

    from_step: int
    to_step: int
    began: float  # seconds since 1970
    ended: float
    end: str | None = None
    """Event that ended it; None if it was killed or still runs."""


@dataclass
class RunEvents:
    """Events of a run in the order of their times."""

    events: list[dict[str, Any]] = field(default_factory=list)
    """`{time, step, reached_step, rank, level, event, message, fields}`; event None for a warning.

    The time is in seconds since 1970. Events of a `test` or another evaluation have `command` in their fields.
    `reached_step` is the step, or the last step before the event if it has none.
    """
    counts: Counter[str] = field(default_factory=Counter)
    """Number of events of each kind, including events that are not kept."""
    attempts: list[Attempt] = field(default_factory=list)
    logged: bool = False
    """Whether a log exists."""
    unreadable: dict[str, tuple[int, int]] = field(default_factory=dict)
    """{log file: (number of malformed lines of events and warnings, number of the first of them)}."""


class _EventSample:
    """Bounded sample of a sequence: the first item, the newest, and items at even distances between them."""

    def __init__(self) -> None:
        self.kept: list[dict[str, Any]] = []
        self._newest: dict[str, Any] | None = None
        self._stride = self._seen = 0

    def add(self, item: dict[str, Any]) -> None:
        stride = max(1, self._stride)
        if self._seen % stride == 0:
            if len(self.kept) == KEPT:
                # The sample is full: drop every second item, and double the distance of the items that are kept.
                self.kept, stride = self.kept[::2], 2 * stride
            self.kept.append(item)
        self._stride, self._seen, self._newest = stride, self._seen + 1, item

    def all(self) -> list[dict[str, Any]]:
        newest = [] if self._newest is None or self._newest is self.kept[-1] else [self._newest]
        return [*self.kept, *newest]


def read_events(folder: Path) -> RunEvents:
    """Read log.jsonl, and log-N.jsonl of the other ranks, of any length."""
    events = RunEvents()
    kinds: dict[str, _EventSample] = {}
    for path in [folder / "log.jsonl", *sorted(folder.glob("log-*.jsonl"))]:
        if not path.is_file():
            continue
        events.logged = True
        attempts = _Attempts() if path.name == "log.jsonl" else None
        reached = 0
        for time, step, record in _records(path, events):
            reached = reached if step is None else step
            if record is not None:
                record["reached_step"] = reached
                kind = record["event"] or record["level"]
                events.counts[kind] += 1
                kinds.setdefault(kind, _EventSample()).add(record)
            if attempts:
                attempts.add(time, step, record)
        if attempts:
            events.attempts = attempts.all
    events.events = sorted((item for sample in kinds.values() for item in sample.all()), key=lambda item: item["time"])
    return events


class _Attempts:
    """Collects the attempts from the lines of rank 0."""

    def __init__(self) -> None:
        self.all: list[Attempt] = []
        self._trains = False

    def add(self, time: float, step: int | None, record: Mapping[str, Any] | None) -> None:
        """Add a line: its time, its step, and its record if it is an event or a warning."""
        event = record["event"] if record else None
        if record and "command" in record["fields"]:
            return
        if event in _START_EVENTS:
            self.all.append(Attempt(step or 0, step or 0, time, time))
            self._trains = True
        elif self._trains:
            current = self.all[-1]
            # A line without a later step and without an event may belong to a test, long after the training was killed.
            if step is not None and step > current.to_step or event in _TRAINING_EVENTS:
                current.to_step, current.ended, current.end = max(current.to_step, step or 0), time, None
            if event in _FINAL_EVENTS:
                current.end = event
            self._trains = event not in _END_EVENTS


def _records(path: Path, events: RunEvents) -> Iterator[tuple[float, int | None, dict[str, Any] | None]]:
    """Yield time, step and record of every line; the record is None unless it is an event or a warning.

    Incomplete and malformed lines are skipped and counted in `events`.
    """
    with path.open(encoding="utf-8", errors="replace") as lines:
        for number, line in enumerate(lines, 1):
            try:
                if '"event"' in line or any(f'"{level}"' in line for level in _LEVELS):
                    record = parse_json(line)
                    yield seconds(record["time"]), _step(record), _parse(record)
                elif match := _TIME_AND_STEP.search(line):  # most lines are of a step, and need not be parsed
                    yield seconds(match[1]), None if match[2] == "null" else int(match[2]), None
            except UNREADABLE:
                count, first = events.unreadable.get(path.name, (0, number))
                events.unreadable[path.name] = count + 1, first


def _step(line: Mapping[str, object]) -> int | None:
    """Return the step of a line; None if it is null or absent.

    Raises:
        ValueError: it is neither an integer nor null.
    """
    step = line.get("step")
    if step is not None and not is_integer(step):
        raise ValueError(f"step: expected an integer or null, found {step!r}")
    return step


def _parse(line: Mapping[str, Any]) -> dict[str, Any] | None:
    fields = dict(line.get("fields") or {})
    event = fields.pop("event", None)
    if event is not None and not isinstance(event, str):
        raise ValueError(f"event: expected a name, found {event!r}")
    if fields.get("command") == "fit":
        del fields["command"]
    if "rank" in fields:
        fields.pop("process", None)  # repeats it until version 0.3.0
    if event is None and line["level"] not in _LEVELS:
        return None
    return {
        "time": seconds(line["time"]),
        "step": _step(line),
        "rank": int(line.get("rank", line.get("process")) or 0),  # `process` in version 0.1.0
        "level": line["level"],
        "event": _RENAMED_EVENTS.get(event, event) if event else None,
        "message": _shorten(str(line["message"]), _MAX_LENGTH),
        "fields": {
            str(name): _shorten(_format_field(value), _MAX_FIELD_LENGTH)
            for name, value in [*fields.items()][:_MAX_FIELDS]
        },
    }


def _format_field(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else value if isinstance(value, str) else json.dumps(value)


def _shorten(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 2] + " …"

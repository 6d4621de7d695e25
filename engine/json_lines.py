"""A line of the log as one JSON object, for programs: Loki, Elastic, jq. docs/monitoring.md has the schema."""

import json
import logging
import math
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from typing import Any

from engine.events import event_of

LONGEST = 16_000
"""Characters of a text. What collects logs refuses long lines: Loki those of more than 256 KiB."""


class JsonLines(logging.Formatter):
    """``{"time", "run", "process", "step", "level", "message", "fields"}``.

    Strict JSON in every line: what a file of a user may hold (line breaks, quotes, half a character) is escaped, and a
    figure that is not finite is null.

    Attributes:
        run: the run's name; None until it is known.
        process: the global rank.
        step: tells how many optimizer steps are finished; None before training.
        command: `fit`, `validate`, `test` or `predict`, in the fields of each event; None until it is known.
    """

    def __init__(
        self,
        run: str | None = None,
        process: int = 0,
        step: Callable[[], int | None] = lambda: None,
        command: str | None = None,
    ) -> None:
        super().__init__()
        self.run, self.process, self.step, self.command = run, process, step, command

    def format(self, record: logging.LogRecord) -> str:
        event, given = event_of(record)
        fields = dict(given)
        if event is not None:
            fields = {"event": event, **({} if self.command is None else {"command": self.command}), **fields}
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        line = {
            "time": datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds"),
            "run": self.run,
            "process": self.process,
            "step": self.step(),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            "fields": fields,
        }
        return json.dumps(strict(line), allow_nan=False)


def strict(value: Any) -> Any:
    """The value as JSON has it; a figure that is not finite is null, and of what JSON does not know its text."""
    if isinstance(value, str):
        return value if len(value) <= LONGEST else f"{value[:LONGEST]} ... ({len(value):,} characters)"
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): strict(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [strict(one) for one in value]
    if callable(getattr(value, "item", None)) and getattr(value, "ndim", None) == 0:
        return strict(value.item())  # a figure of torch or numpy
    return strict(str(value))

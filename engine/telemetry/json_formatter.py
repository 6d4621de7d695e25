"""Formats a log record as one JSON object, for Loki, Elastic or jq. docs/monitoring.md has the schema."""

import json
import logging
import math
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from typing import Any

from typing_extensions import override

from engine.telemetry.log_events import event_of, rank_keys

MAX_TEXT_LENGTH = 16_000
"""Characters of a text before it is cut. Log collectors refuse long lines; Loki refuses more than 256 KiB."""


class JsonFormatter(logging.Formatter):
    """`{"time", "run", "rank", "local_rank", "step", "level", "message", "fields"}`.

    Every line is strict JSON: text of a user's file (line breaks, quotes, lone surrogates) is escaped, and a number
    that is not finite becomes null. Until version 0.3.0 the key `process` repeats `rank`.

    Attributes:
        run: name of the run; None until it is known.
        rank: global rank.
        step: returns the number of finished optimizer steps, or None before training.
        command: `fit`, `validate`, `test` or `predict`, added to the fields of each event; None until it is known.
        local_rank: rank on the machine; None until it is known.
    """

    def __init__(
        self,
        run: str | None = None,
        rank: int = 0,
        step: Callable[[], int | None] = lambda: None,
        command: str | None = None,
        local_rank: int | None = None,
    ) -> None:
        super().__init__()
        self.run, self.rank, self.step, self.command = run, rank, step, command
        self.local_rank = local_rank

    @override
    def format(self, record: logging.LogRecord) -> str:
        event, details = event_of(record)
        fields = dict(details)
        if event is not None:
            fields = {"event": event, **({} if self.command is None else {"command": self.command}), **fields}
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        line = {
            "time": datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds"),
            "run": self.run,
            **rank_keys(self.rank),
            "local_rank": self.local_rank,
            "step": self.step(),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            "fields": fields,
        }
        # `allow_nan=False` raises an error if NaN, which is not JSON, were left.
        return json.dumps(to_json_safe(line), allow_nan=False)


def to_json_safe(value: Any) -> Any:
    """Return the value as strict JSON: null for a number that is not finite, text for an unknown type."""
    if isinstance(value, str):
        if len(value) <= MAX_TEXT_LENGTH:
            return value
        return f"{value[:MAX_TEXT_LENGTH]} ... ({len(value):,} characters)"
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): to_json_safe(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json_safe(item) for item in value]
    if callable(getattr(value, "item", None)) and getattr(value, "ndim", None) == 0:
        return to_json_safe(value.item())  # a scalar of torch or numpy
    return to_json_safe(str(value))

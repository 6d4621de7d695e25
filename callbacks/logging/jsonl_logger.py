"""Writes metrics.jsonl."""

import json
import logging
import math
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from typing_extensions import override

from callbacks.logging.metric_sink import MetricSink
from callbacks.logging.progress_bar import stage_of, step_summary
from engine.io.atomic_file import write_atomically
from engine.telemetry.append_file import AppendOnlyFile
from engine.telemetry.json_formatter import to_json_safe
from engine.telemetry.log_events import HIDDEN_ON_CONSOLE, event, rank_keys

log = logging.getLogger("lockstep")


class JsonlLogger(MetricSink):
    """Lightning logger that appends one JSON object per line: time, run, rank, step, epoch and metrics by name.

    `step` counts finished optimizer steps, so the first is 1. `time` is UTC in ISO 8601. A value that is not finite
    is null, because JSON has neither NaN nor infinity. A record of an evaluation also lists in `altered` the settings
    that differ from the run's.

    Args:
        path: file to append to.
        progress: returns (finished optimizer steps, epoch).
        altered: settings of an evaluation that differ from the run's, separated by commas.
    """

    def __init__(self, path: Path, progress: Callable[[], tuple[int, int]], altered: str = "") -> None:
        super().__init__("metrics")
        self.path, self._progress, self._altered = path, progress, altered
        self.latest: dict[str, float] = {}
        """Metrics of the last logged training step."""
        self.last_training_step = 0
        """Step of the last training record that the file held when the run resumed."""
        self.progress_bar_visible = False
        self._file = AppendOnlyFile(path)

    @override
    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        # Lightning's `step` counts micro-batches in some hooks, so the step comes from `progress`.
        finished_steps, epoch = self._progress()
        record: dict[str, Any] = {
            "time": datetime.now(timezone.utc).isoformat(timespec="milliseconds"),
            "run": self.path.parent.name,
            **rank_keys(0),
            "step": finished_steps,
            "epoch": epoch,
        }
        if stage_of(metrics):
            record["altered"] = self._altered
        record.update({key: value for key, value in metrics.items() if key != "epoch"})
        self._file.write(json.dumps(to_json_safe(record), allow_nan=False) + "\n")
        line = step_summary(metrics, finished_steps, epoch)
        fields = {name: value for name, value in metrics.items() if name != "epoch"}
        # A training step is a line in train.log; an evaluation is an event.
        if line:
            self.latest = metrics
            log.info("%s", line, extra={"progress_bar_visible": self.progress_bar_visible, "fields": fields})
        elif stage := stage_of(metrics):
            evaluated = event("evaluated", stage=stage, epoch=epoch, **fields)
            log.info(
                "step %d, epoch %d: evaluated (%s)", finished_steps, epoch, stage, extra=HIDDEN_ON_CONSOLE | evaluated
            )
        log.debug("%s", "  ".join(f"{k} {v:.6g}" if isinstance(v, float) else f"{k} {v}" for k, v in record.items()))

    def drop_after(self, step: int) -> None:
        """Remove records after a step, and malformed lines. A run that resumes from this step writes them again."""
        lines = self.path.read_bytes().splitlines(keepends=True)
        # A corrupt line counts as a line of step infinity, so it is removed in every case.
        valid_lines = [line for line in lines if _step_of(line) <= step]
        training = (json.loads(line) for line in reversed(valid_lines))
        self.last_training_step = next((record["step"] for record in training if not stage_of(record)), 0)
        # Replace the file at once, so that a kill loses no record. The open file would still be the old one.
        if len(valid_lines) < len(lines):
            self._file.close()
            write_atomically(self.path, b"".join(valid_lines))
            self._file = AppendOnlyFile(self.path)

    def close(self) -> None:
        """Write pending records and close the file."""
        self._file.close()


def _step_of(line: bytes) -> float:
    """Return the step of a record; infinity for a line that a killed process or a failing disk has left corrupt."""
    try:
        # A line without a line end may be cut off, also if it is valid JSON.
        step = json.loads(line)["step"] if line.endswith(b"\n") else math.inf
    except (ValueError, LookupError, TypeError, RecursionError):
        return math.inf
    # Valid JSON may hold a step that is text, which no number compares with.
    return step if isinstance(step, (int, float)) else math.inf

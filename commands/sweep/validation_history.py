"""Reads the values of one validation metric from the metrics.jsonl of a training, while it grows."""

import math
import os
from collections.abc import Iterable
from pathlib import Path

from engine.io.json_records import parse_json
from engine.number_check import is_number


class ValidationHistory:
    """Values of a metric by optimizer step, in ascending order; each step counts once.

    A resumed training drops the lines after its checkpoint and writes the same values again, so they are read once.

    Args:
        path: metrics.jsonl, which need not exist yet.
        metric: name of the metric.
        reported: (step, value) of validations that a worker before has read, in ascending order.
    """

    def __init__(self, path: Path, metric: str, reported: Iterable[tuple[int, float]] = ()) -> None:
        self.values = list(reported)
        """(step, value) of all validations that were read."""
        self.others: set[str] = set()
        """Validation metrics in the file, for messages."""
        self.steps: set[int] = set()
        """Steps with validation metrics in the file."""
        self._path, self._metric = path, metric
        self._file, self._offset = (0, 0), 0

    def read_new(self) -> list[tuple[int, float]]:
        """Return (step, value) of the validations since the last call."""
        before = len(self.values)
        try:
            with self._path.open("rb") as file:
                status = os.fstat(file.fileno())
                identity = status.st_dev, status.st_ino
                if identity != self._file or status.st_size < self._offset:  # a resume has replaced the file
                    self._file, self._offset = identity, 0
                file.seek(self._offset)
                complete, newline, _ = file.read().rpartition(b"\n")
        except FileNotFoundError:
            return []
        self._offset += len(complete) + len(newline)
        for line in complete.splitlines():
            if b'"val/' in line:
                self._add(line)
        return self.values[before:]

    def _add(self, line: bytes) -> None:
        try:
            record = parse_json(line)
            step, value = record["step"], record.get(self._metric)
        except (ValueError, LookupError, AttributeError, TypeError):  # a kill may leave a line incomplete
            return
        if record.get("altered"):
            return
        self.others |= {name for name in record if name.startswith("val/") and "/baseline/" not in name}
        if isinstance(step, int):
            self.steps.add(step)
        is_finite = is_number(value) and math.isfinite(value)
        if is_finite and isinstance(step, int) and (not self.values or step > self.values[-1][0]):
            self.values.append((step, float(value)))

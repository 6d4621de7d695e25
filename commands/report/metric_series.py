"""Reads the metrics of a run from metrics.jsonl: series over the steps, the best evaluation and the last test."""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Literal

from commands.report.downsample import DownsampledSeries
from engine.io.json_records import parse_json, reject_duplicate_keys
from engine.number_check import is_integer, is_number

UNREADABLE = (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError)
"""Errors of reading a malformed line."""

_NOT_METRICS = {"step", "epoch", "time", "run", "rank", "process"}

_RENAMED = {
    "train/slowest_process": "train/slowest_rank",
    **{f"{stage}/unusable_samples": f"{stage}/bad_samples" for stage in ("train", "val", "test")},
}
"""{name of a metric in runs of version 0.1.0: current name}."""


class OtherSettingsError(ValueError):
    """The latest test had other settings than the run, so what it saved does not match the run's metrics."""


@dataclass
class MetricHistory:
    """Metrics of a run."""

    series: dict[str, DownsampledSeries] = field(default_factory=dict)
    """`train/...` and `val/...` over the steps, without baselines; times in seconds since 1970."""
    best: dict[str, float] = field(default_factory=dict)
    """All `val/...` of the evaluation with the best monitored metric; of the last evaluation without a monitor."""
    best_step: int | None = None
    test: dict[str, float] = field(default_factory=dict)
    test_step: int | None = None
    baselines: dict[str, float] = field(default_factory=dict)
    """`val/baseline/NAME/...` and `test/baseline/NAME/...`, which do not change."""
    last_step: int = 0
    last_epoch: int = 0
    first_time: float | None = None
    last_time: float | None = None
    unreadable: int = 0
    """Number of malformed lines; a killed process may leave the last line incomplete."""
    first_unreadable: int | None = None
    """Number of the first malformed line, from 1."""


def read_metrics(path: Path, monitor: str | None, mode: Literal["min", "max"], points: int) -> MetricHistory:
    """Read a metrics.jsonl of any length line by line.

    Args:
        path: the file; if it does not exist, the history is empty.
        monitor: metric that selects the best evaluation.
        mode: whether the largest or the smallest value is the best.
        points: largest number of points of a series.
    """
    history, best = MetricHistory(), None
    if not path.is_file():
        return history
    for record in _records(path, history):
        step, time, epoch, values = record
        test_names = [name for name in values if name.startswith("test/")]
        if test_names:
            history.test = {name: values[name] for name in test_names if "/baseline/" not in name}
            history.test_step = step
        advanced = False
        for name, value in values.items():
            if "/baseline/" in name:
                history.baselines[name] = value
            elif name not in test_names:
                series = history.series.get(name) or history.series.setdefault(name, DownsampledSeries(points))
                advanced = series.add(step, time, value) or advanced
        if advanced:
            history.last_step, history.last_epoch = max(history.last_step, step), epoch
            history.first_time = time if history.first_time is None else history.first_time
            history.last_time = time
        evaluated = {name: value for name, value in values.items() if _is_validation(name)}
        if evaluated and advanced:
            reached = evaluated.get(monitor, math.nan) if monitor else math.nan
            better = best is None or (reached >= best if mode == "max" else reached <= best)
            # Without a monitor, the last evaluation counts; so it does until the monitor has been logged.
            if monitor is None or monitor not in evaluated and best is None or better and math.isfinite(reached):
                history.best, history.best_step = evaluated, step
                best = reached if math.isfinite(reached) else best
    return history


def latest_value(path: Path, name: str) -> float | None:
    """Return the latest value of a metric of an evaluation with the run's own settings; None without an evaluation."""
    latest = None
    if not path.is_file():
        return None
    with path.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if name in line:  # few lines are of a test, and the others need not be parsed
                try:
                    record = parse_json(line)
                    if not record.get("altered") and isinstance(record[name], int | float):
                        latest = float(record[name])
                except UNREADABLE:
                    continue
    return latest


def _is_metric(name: str, value: object) -> bool:
    return name not in _NOT_METRICS and (value is None or is_number(value))


def _is_validation(name: str) -> bool:
    return name.startswith("val/") and "/baseline/" not in name


def _records(path: Path, history: MetricHistory) -> Iterator[tuple[int, float, int, dict[str, float]]]:
    """Yield step, time, epoch and metrics of every line; null is a metric that was not finite.

    Evaluations with changed settings are skipped: they are not the run's.
    """
    with path.open(encoding="utf-8", errors="replace") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                record = json.loads(line, object_pairs_hook=reject_duplicate_keys)  # NaN is a number, as null is
                if record.get("altered"):
                    continue
                metrics = [(_RENAMED.get(key, key), value) for key, value in record.items() if _is_metric(key, value)]
                values = {name: math.nan if value is None else float(value) for name, value in metrics}
                parsed = _whole(record["step"]), seconds(record["time"]), _whole(record.get("epoch") or 0), values
            except UNREADABLE:
                history.unreadable += 1
                history.first_unreadable = history.first_unreadable or number
                continue
            yield parsed


def _whole(value: object) -> int:
    if not is_integer(value):
        raise TypeError(f"expected an integer, found {value!r}")
    return value


def seconds(time: str) -> float:
    """Convert an ISO 8601 time to seconds since 1970."""
    return datetime.fromisoformat(time.replace("Z", "+00:00")).timestamp()  # Python 3.10 does not know Z

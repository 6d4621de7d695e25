"""What metrics.jsonl tells: the course of every figure, those of the best checkpoint, and those of the last test."""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from types import NoneType
from typing import Any, Literal

from commands.report.thinned import Thinned

UNREADABLE = (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError)
"""What reading a line raises that is not as a run writes it."""

_NOT_FIGURES = {"step", "epoch", "time", "run", "process"}


@dataclass
class Figures:
    """Of one run."""

    courses: dict[str, Thinned] = field(default_factory=dict)
    """`train/...` and `val/...` over the steps, without baselines; times are seconds since 1970."""
    best: dict[str, float] = field(default_factory=dict)
    """All `val/...` of the evaluation with the best value of the monitored one; of the last one if there is none."""
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
    """Lines that are not whole, as the last one of a killed process may be, or not what a run writes."""


def read_figures(path: Path, monitor: str | None, mode: Literal["min", "max"], points: int) -> Figures:
    """Reads a file of any length line by line.

    Args:
        monitor: the figure by which the best evaluation is told.
        points: of a course, at most.
    """
    figures, best = Figures(), None
    if not path.is_file():
        return figures
    for record in _records(path, figures):
        step, time, epoch, values = record
        of_test = [name for name in values if name.startswith("test/")]
        if of_test:
            figures.test = {name: values[name] for name in of_test if "/baseline/" not in name}
            figures.test_step = step
        advanced = False
        for name, value in values.items():
            if "/baseline/" in name:
                figures.baselines[name] = value
            elif name not in of_test:
                course = figures.courses.get(name) or figures.courses.setdefault(name, Thinned(points))
                advanced = course.add(step, time, value) or advanced
        if advanced:
            figures.last_step, figures.last_epoch = max(figures.last_step, step), epoch
            figures.first_time = time if figures.first_time is None else figures.first_time
            figures.last_time = time
        evaluated = {name: value for name, value in values.items() if _is_of_validation(name)}
        if evaluated and advanced:
            reached = evaluated.get(monitor, math.nan) if monitor else math.nan
            better = best is None or (reached > best if mode == "max" else reached < best)
            if monitor is None or monitor not in evaluated and best is None or better and math.isfinite(reached):
                figures.best, figures.best_step = evaluated, step
                best = reached if math.isfinite(reached) else best
    return figures


def _is_figure(name: str, value: Any) -> bool:
    return name not in _NOT_FIGURES and isinstance(value, (int, float, NoneType)) and not isinstance(value, bool)


def _is_of_validation(name: str) -> bool:
    return name.startswith("val/") and "/baseline/" not in name


def _records(path: Path, figures: Figures) -> Iterator[tuple[int, float, int, dict[str, float]]]:
    """Of every line step, time, epoch and figures; null is a figure that was not finite.

    Lines of evaluations with other settings than the run's are left out.
    """
    with path.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            try:
                record = json.loads(line)
                if record.get("altered"):  # an evaluation on less or other data is not the run's
                    continue
                named = [(name, value) for name, value in record.items() if _is_figure(name, value)]
                values = {name: math.nan if value is None else float(value) for name, value in named}
                parsed = int(record["step"]), seconds(record["time"]), int(record.get("epoch") or 0), values
            except UNREADABLE:
                figures.unreadable += 1
                continue
            yield parsed


def seconds(time: str) -> float:
    """An ISO 8601 time in seconds since 1970."""
    return datetime.fromisoformat(time.replace("Z", "+00:00")).timestamp()  # Python 3.10 does not know Z

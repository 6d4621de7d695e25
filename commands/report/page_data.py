"""Collects the data of the page about runs in a JSON object that the page's scripts read."""

import os
import statistics
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from commands.report.event_log import RunEvents, read_events
from commands.report.metric_series import MetricHistory, read_metrics
from commands.report.preview_history import read_previews
from commands.report.settings_diff import (
    Settings,
    describe_kind,
    differences,
    group_name,
    read_recorded_settings,
    seed_groups,
)
from engine.io.json_records import parse_json
from engine.telemetry.energy_file import read_energy

_POINTS = 1000
_MIN_POINTS = 160
_PICTURES = 8 << 20  # bytes, of all runs together


def page_content(folders: Sequence[Path], page: Path) -> dict[str, Any]:
    """Return the data of the page.

    Args:
        folders: run directories, each with a metrics.jsonl or a log.jsonl.
        page: path of the page, to which links to files of the runs are relative.

    Raises:
        ValueError: a file of a run is malformed.
    """
    # Points and pictures are shared by the runs, so that the page stays small with many runs.
    points = max(_MIN_POINTS, _POINTS // len(folders))
    names = [folder.resolve().name for folder in folders]
    pictures = _PICTURES // len(folders)
    runs = [_run(folder, name, points, pictures, page) for folder, name in zip(folders, names, strict=True)]
    configs = [run["settings"] for run in runs]
    groups = [{"name": group_name([names[run] for run in group]), "runs": group} for group in seed_groups(configs)]
    return {
        "made": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "runs": runs,
        "groups": _make_names_unique(groups),
        "differences": [{"key": key, "values": values} for key, values in differences(configs)],
    }


def _run(folder: Path, name: str, points: int, pictures: int, page: Path) -> dict[str, Any]:
    recorded = read_recorded_settings(folder)
    settings = recorded.newest
    environment, environment_problems = _environment(folder / "environment.json")
    monitor = settings.get("best_checkpoint.monitor")
    mode: Literal["min", "max"] = "min" if settings.get("best_checkpoint.mode") == "min" else "max"
    metrics = read_metrics(folder / "metrics.jsonl", monitor, mode, points)
    events = read_events(folder)
    examples = read_previews(folder / "examples", pictures)
    began = min((time for time in _times(metrics, events)), default=0.0)
    return {
        "name": name,
        "began": began,
        "settings": settings,
        "starts": _starts(recorded.of_files),
        "environment": environment,
        "monitor": {"name": monitor, "mode": mode},
        "results": {
            "val": metrics.best, "val_step": metrics.best_step,
            "test": metrics.test, "test_step": metrics.test_step, "baselines": metrics.baselines,
        },
        **_series(metrics, began),
        "events": [{**event, "time": event["time"] - began} for event in events.events],
        "counts": dict(events.counts),
        "logged": events.logged,
        "attempts": _attempts(metrics, events, began),
        "summary": _summary(metrics, events),
        "energy": (energy := read_energy(folder)) and energy._asdict(),
        "examples": examples,
        "problems": [
            *recorded.problems, *environment_problems, *_problems(folder, metrics, events, examples["unreadable"]),
        ],
        "links": [
            {"name": path.name, "href": href}
            for path in sorted(folder.glob("*.html"))
            if path.name != "report.html" and path.resolve() != page.resolve() and (href := _link(path, page))
        ],
    }  # fmt: skip


def _problems(folder: Path, metrics: MetricHistory, events: RunEvents, previews: int) -> list[str]:
    """Return what is malformed in the records of a run, and is missing on the page."""
    lines = {"metrics.jsonl": (metrics.unreadable, metrics.first_unreadable or 0), **events.unreadable}
    problems = [
        f"{folder / name}, line {first}: not a whole record, skipped"
        + (f", and {count - 1} more of this kind" if count > 1 else "")
        for name, (count, first) in lines.items()
        if count
    ]
    if previews:
        problems.append(f"{folder / 'examples'}: files skipped that are no previews: {previews}")
    return problems


def _link(path: Path, page: Path) -> str | None:
    """Return a relative link from the page to a file; quoted, so that `http:a.html` or `a#b.html` is a file name."""
    try:
        relative = Path(os.path.relpath(path.resolve(), page.resolve().parent))
    except ValueError:  # on another drive of Windows
        return None
    return "./" + quote(os.fsencode(relative.as_posix()))


def _times(metrics: MetricHistory, events: RunEvents) -> list[float]:
    starts = [attempt.began for attempt in events.attempts] or [event["time"] for event in events.events[:1]]
    return starts if metrics.first_time is None else [*starts, metrics.first_time]


def _series(metrics: MetricHistory, began: float) -> dict[str, Any]:
    """Return the series, and the steps and times of their points. Series with the same points share them."""
    shared: dict[tuple[tuple[float, ...], tuple[float, ...]], int] = {}
    series = {}
    for name, history in metrics.series.items():
        points = history.points()
        steps, times = (
            [_round_to_tenth(point.step) for point in points],
            [_round_to_tenth(point.time - began) for point in points],
        )
        series[name] = {
            "points_index": shared.setdefault((tuple(steps), tuple(times)), len(shared)),
            "width": history.width,
            "mean": [_round_value(point.mean) for point in points],
            **({} if history.width == 1 else {
                "low": [_round_value(point.low) for point in points],
                "high": [_round_value(point.high) for point in points],
            }),
        }  # fmt: skip
    return {"points": [{"step": steps, "time": times} for steps, times in shared], "series": series}


def _round_to_tenth(value: float) -> float:
    return int(value) if value == int(value) else round(value, 1)


def _round_value(value: float | None) -> float | None:
    """Round to 6 digits, which makes the page a third as large and does not show in a curve."""
    return None if value is None else float(f"{value:.6g}")


def _attempts(metrics: MetricHistory, events: RunEvents, began: float) -> list[dict[str, Any]]:
    """Return the attempts; without a log, one attempt from the first to the last metric."""
    shown: list[dict[str, Any]] = [
        {"from": attempt.from_step, "to": attempt.to_step, "began": attempt.began - began,
         "ended": attempt.ended - began, "end": attempt.end}
        for attempt in events.attempts
    ]  # fmt: skip
    if not shown and metrics.first_time is not None and metrics.last_time is not None:
        span = {"began": metrics.first_time - began, "ended": metrics.last_time - began}
        shown = [{"from": 0, "to": metrics.last_step, **span, "end": None}]
    elif shown and metrics.last_time is not None:
        shown[-1]["to"] = max(shown[-1]["to"], metrics.last_step)
        shown[-1]["ended"] = max(shown[-1]["ended"], metrics.last_time - began)
    return shown


def _summary(metrics: MetricHistory, events: RunEvents) -> dict[str, Any]:
    def means(name: str) -> list[float]:
        points = metrics.series[name].points() if name in metrics.series else []
        return [point.mean for point in points if point.mean is not None]

    memory = metrics.series["train/memory_gib"].points() if "train/memory_gib" in metrics.series else []
    speed = means("train/samples_per_second")
    return {
        "steps": max([metrics.last_step, *(attempt.to_step for attempt in events.attempts)]),
        "epochs": metrics.last_epoch + 1 if metrics.series else 0,
        "samples_per_second": statistics.median(speed) if speed else None,
        "memory_gib": max((point.high for point in memory if point.high is not None), default=None),
        "unreadable": metrics.unreadable,
    }


def _starts(configs: Mapping[str, Settings]) -> list[dict[str, Any]]:
    """Return the settings in which each later start of a run differs from the start before it."""
    names = list(configs)
    return [
        {"name": name, "changes": [[key, *values] for key, values in differences([configs[before], configs[name]])]}
        for before, name in zip(names, names[1:], strict=False)
    ]


def _environment(path: Path) -> tuple[dict[str, Any], list[str]]:
    """Return the environment of the newest start, and a message if the file has none.

    Raises:
        ValueError: the file is not JSON.
    """
    if not path.is_file():
        return {}, []
    try:
        content = parse_json(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}; remove it, or resume the run, which writes it again") from error
    if isinstance(content, dict):
        return content, []
    return {}, [f"{path}: found {describe_kind(content)}, expected the environment of a run, an object; skipped"]


def _make_names_unique(groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Append a number to the names of groups with the same stem."""
    seen: dict[str, int] = {}
    for group in groups:
        name = group["name"]
        seen[name] = seen.get(name, 0) + 1
        group["name"] = name if seen[name] == 1 else f"{name} ({seen[name]})"
    return groups

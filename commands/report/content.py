"""What the page of one or several runs shows, as JSON has it."""

import json
import os
import statistics
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from urllib.parse import quote

from commands.report.events import Happenings, read_happenings
from commands.report.examples import read_examples
from commands.report.figures import Figures, read_figures
from commands.report.settings import Settings, differences, group_name, read_settings, seed_groups

_POINTS = 1000
_FEWEST_POINTS = 160
_PICTURES = 8 << 20  # bytes, of all runs together


def page_content(folders: Sequence[Path], page: Path) -> dict[str, Any]:
    """Reads runs.

    Args:
        folders: of the runs, each with a metrics.jsonl or a log.jsonl.
        page: where the page will lie; links to other files of the runs start from there.

    Raises:
        ValueError: a run's file is not what it should be.
    """
    points = max(_FEWEST_POINTS, _POINTS // len(folders))
    names = [folder.resolve().name for folder in folders]
    runs = [_run(folder, name, points, _PICTURES // len(folders), page) for folder, name in zip(folders, names)]
    configs = [run["settings"] for run in runs]
    groups = [{"name": group_name([names[run] for run in group]), "runs": group} for group in seed_groups(configs)]
    return {
        "made": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "runs": runs,
        "groups": _named_apart(groups),
        "differences": [{"key": key, "values": values} for key, values in differences(configs)],
    }


def _run(folder: Path, name: str, points: int, pictures: int, page: Path) -> dict[str, Any]:
    configs = read_settings(folder)
    settings: Settings = list(configs.values())[-1] if configs else {}
    monitor = settings.get("best_checkpoint.monitor")
    mode = "min" if settings.get("best_checkpoint.mode") == "min" else "max"
    figures = read_figures(folder / "metrics.jsonl", monitor, mode, points)
    happenings = read_happenings(folder)
    began = min((time for time in _times(figures, happenings)), default=0.0)
    return {
        "name": name,
        "began": began,
        "settings": settings,
        "starts": _starts(configs),
        "environment": _environment(folder / "environment.json"),
        "monitor": {"name": monitor, "mode": mode},
        "results": {
            "val": figures.best, "val_step": figures.best_step,
            "test": figures.test, "test_step": figures.test_step, "baselines": figures.baselines,
        },
        **_courses(figures, began),
        "events": [{**event, "time": event["time"] - began} for event in happenings.events],
        "counts": dict(happenings.counts),
        "logged": happenings.logged,
        "attempts": _attempts(figures, happenings, began),
        "summary": _summary(figures, happenings),
        "examples": read_examples(folder / "examples", pictures),
        "links": [
            {"name": path.name, "href": href}
            for path in sorted(folder.glob("*.html"))
            if path.name != "report.html" and path.resolve() != page.resolve() and (href := _link(path, page))
        ],
    }  # fmt: skip


def _link(path: Path, page: Path) -> str | None:
    """From a page to a file; a name like `http:a.html` or `a#b.html` is nothing else than a name."""
    try:
        way = Path(os.path.relpath(path.resolve(), page.resolve().parent))
    except ValueError:  # on another drive of Windows
        return None
    return "./" + quote(os.fsencode(way.as_posix()))


def _times(figures: Figures, happenings: Happenings) -> list[float]:
    starts = [attempt.began for attempt in happenings.attempts] or [event["time"] for event in happenings.events[:1]]
    return starts if figures.first_time is None else [*starts, figures.first_time]


def _courses(figures: Figures, began: float) -> dict[str, Any]:
    """Figures of the same steps share their places."""
    places: dict[tuple[tuple[float, ...], tuple[float, ...]], int] = {}
    series = {}
    for name, course in figures.courses.items():
        points = course.points()
        at = tuple(_tenth(point.step) for point in points), tuple(_tenth(point.time - began) for point in points)
        series[name] = {
            "at": places.setdefault(at, len(places)),
            "width": course.width,
            "mean": [_short(point.mean) for point in points],
            **({} if course.width == 1 else {
                "low": [_short(point.low) for point in points], "high": [_short(point.high) for point in points],
            }),
        }  # fmt: skip
    return {"places": [{"step": steps, "time": times} for steps, times in places], "series": series}


def _tenth(value: float) -> float:
    return int(value) if value == int(value) else round(value, 1)


def _short(value: float | None) -> float | None:
    """A few digits less make the page a third as large, and nobody sees them in a curve."""
    return None if value is None else float(f"{value:.6g}")


def _attempts(figures: Figures, happenings: Happenings, began: float) -> list[dict[str, Any]]:
    """Without a log the figures still say from where to where there was training."""
    found = [
        {"from": one.from_step, "to": one.to_step, "began": one.began - began, "ended": one.ended - began,
         "end": one.end}
        for one in happenings.attempts
    ]  # fmt: skip
    if not found and figures.first_time is not None and figures.last_time is not None:
        span = {"began": figures.first_time - began, "ended": figures.last_time - began}
        found = [{"from": 0, "to": figures.last_step, **span, "end": None}]
    elif found and figures.last_time is not None:
        found[-1]["to"] = max(found[-1]["to"], figures.last_step)
        found[-1]["ended"] = max(found[-1]["ended"], figures.last_time - began)
    return found


def _summary(figures: Figures, happenings: Happenings) -> dict[str, Any]:
    def means(name: str) -> list[float]:
        points = figures.courses[name].points() if name in figures.courses else []
        return [point.mean for point in points if point.mean is not None]

    memory = figures.courses["train/memory_gib"].points() if "train/memory_gib" in figures.courses else []
    speed = means("train/samples_per_second")
    return {
        "steps": max([figures.last_step, *(attempt.to_step for attempt in happenings.attempts)]),
        "epochs": figures.last_epoch + 1 if figures.courses else 0,
        "samples_per_second": statistics.median(speed) if speed else None,
        "memory_gib": max((point.high for point in memory if point.high is not None), default=None),
        "unreadable": figures.unreadable,
    }


def _starts(configs: Mapping[str, Settings]) -> list[dict[str, Any]]:
    """With what a later start of a run differed from the one before."""
    names = list(configs)
    return [
        {"name": name, "changes": [[key, *values] for key, values in differences([configs[before], configs[name]])]}
        for before, name in zip(names, names[1:])
    ]


def _environment(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}; train.py fit writes it anew, or remove it") from error
    return found if isinstance(found, dict) else {}


def _named_apart(groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Two groups whose runs have the same stem are told apart by a number."""
    seen: dict[str, int] = {}
    for group in groups:
        name = group["name"]
        seen[name] = seen.get(name, 0) + 1
        group["name"] = name if seen[name] == 1 else f"{name} ({seen[name]})"
    return groups

"""Describes machine, versions and commit of measurements, and prints and stores measurements."""

import json
import os
import platform
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

_ROOT = Path(__file__).resolve().parents[1]


def describe_environment(repeats: int) -> dict[str, Any]:
    """Return the machine, the versions and the commit of the measurements."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": 1,
        # With a load near the number of cores, wall times of this run mean little.
        "load": list(os.getloadavg()),
        "system": platform.platform(),
        "python": platform.python_version(),
        "torch": version("torch"),
        "numpy": version("numpy"),
        "commit": _commit(),
        "repeats": repeats,
    }


def closing_line(environment: dict[str, Any]) -> str:
    """Return a line that describes the measurements above it and their machine."""
    return (
        f"Median (smallest to largest) of {environment['repeats']} turns. {environment['processor']}, "
        f"{environment['cores']} cores, load {environment['load'][0]:.1f} at the start; "
        f"Python {environment['python']}, torch {environment['torch']}, "
        f"commit {environment['commit']}"
    )


def end_report(out: "Console", environment: dict[str, Any], results: list[dict[str, Any]], path: Path | None) -> None:
    """Print the closing line below the tables, and write the results as JSON if a path is given."""
    out.print(closing_line(environment), highlight=False)
    if path:
        write_json(path, results, environment)


def write_json(path: Path, results: list[dict[str, Any]], environment: dict[str, Any]) -> None:
    """Write the results as JSON, completely or not at all."""
    # A name with the process id, so that two benchmarks that write to one file do not mix.
    beside = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with beside.open("w", encoding="utf-8") as file:
            json.dump({**environment, "comparisons": results}, file, indent=1)
            file.flush()
            # The content is flushed before the rename: after a crash the name must not refer to an empty file.
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def console() -> "Console":
    """Return a console that is wide enough for the tables even without a terminal."""
    from rich.console import Console  # the GPU benchmark runs where rich is not installed

    return Console(width=None if sys.stdout.isatty() else 140)


def goals_reached(goals: list[dict[str, Any]]) -> str:
    """Return a line per goal. A goal has `text`, the number `found`, and whether it is `met`."""
    lines = [
        f"goal: {goal['text']}: {'met' if goal['met'] else '[red]missed[/red]'} ({number(goal['found'])})"
        for goal in goals
    ]
    return "\n".join(lines)


def ratios(ours: list[float], theirs: list[float]) -> list[float]:
    """Return the ratios within each turn."""
    return [one / other for one, other in zip(ours, theirs, strict=True)]


def spread(values: list[float]) -> str:
    """Format the median, minimum and maximum."""
    return f"{number(median(values))} ({number(min(values))} to {number(max(values))})"


def number(value: float) -> str:
    """Format a number with three digits."""
    # From 99.95 on three digits need no decimals.
    return f"{value:,.0f}" if value >= 99.95 else f"{value:#.3g}"


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _commit() -> str:
    command = ["git", "-C", str(_ROOT), "describe", "--always", "--dirty", "--abbrev=10"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"

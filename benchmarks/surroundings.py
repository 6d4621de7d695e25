"""What figures belong to (machine, versions, commit), how they are written and where they go."""

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


def surroundings(repeats: int) -> dict[str, Any]:
    """The machine, the versions and the commit that the figures belong to."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": 1,
        "load": list(os.getloadavg()),
        "system": platform.platform(),
        "python": platform.python_version(),
        "torch": version("torch"),
        "numpy": version("numpy"),
        "commit": _commit(),
        "repeats": repeats,
    }


def closing_line(around: dict[str, Any]) -> str:
    """What the figures above it are, and what they belong to."""
    return (
        f"Median (smallest to largest) of {around['repeats']} turns. {around['processor']}, {around['cores']} cores, "
        f"load {around['load'][0]:.1f} at the start; Python {around['python']}, torch {around['torch']}, "
        f"commit {around['commit']}"
    )


def write_json(path: Path, results: list[dict[str, Any]], around: dict[str, Any]) -> None:
    """Whole or not at all."""
    beside = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with beside.open("w", encoding="utf-8") as file:
            json.dump({**around, "comparisons": results}, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def console() -> "Console":
    """Wide enough for the table also where there is no terminal."""
    from rich.console import Console  # the GPU's benchmark runs where it is not installed

    return Console(width=None if sys.stdout.isatty() else 140)


def goals_reached(goals: list[dict[str, Any]]) -> str:
    """A line a goal, to stand below a table; each has `text`, the figure `found` and whether it is `met`."""
    lines = [
        f"goal: {goal['text']}: {'met' if goal['met'] else '[red]missed[/red]'} ({number(goal['found'])})"
        for goal in goals
    ]
    return "\n".join(lines)


def spread(figures: list[float]) -> str:
    """Median, smallest and largest."""
    return f"{number(median(figures))} ({number(min(figures))} to {number(max(figures))})"


def number(figure: float) -> str:
    """Three digits."""
    return f"{figure:,.0f}" if figure >= 99.95 else f"{figure:#.3g}"


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

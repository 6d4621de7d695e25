"""Parts of the benchmark; each is a table of sides."""

from functools import partial
from statistics import median
from typing import Any

from rich import box
from rich.table import Table

from benchmarks.engine.trainings import GUARDS, bare, engine, plain_lightning
from benchmarks.engine.turns import Body, Turn, take_turns
from benchmarks.surroundings import spread

Result = dict[str, Any]
"""Measurements of a part, ready for JSON: name, title, and the seconds per step of each side's turns."""

_BATCH = {"small": 8, "20 ms": 120}
"""Samples in a step of the tower, chosen for the duration of the step on a single core."""


def step(repeats: int, processes: int = 1) -> Result:
    """Measure each guard alone, in microseconds per step above the engine without guards."""
    batch = _BATCH["small"]
    sides: dict[str, Body] = {
        "bare torch loop": partial(bare, batch_size=batch),
        "plain Lightning": partial(plain_lightning, batch_size=batch),
        "engine without guards": partial(engine, batch_size=batch, guards=()),
    }
    for guard in GUARDS:
        sides[f"engine, {guard}"] = partial(engine, batch_size=batch, guards=(guard,))
    sides["engine, all guards"] = partial(engine, batch_size=batch)
    turns = take_turns(sides, processes=dict.fromkeys(sides, processes), steps=200, repeats=repeats)
    title = f"A small step, {processes} process{'es' * (processes > 1)}"
    return _result("step", title, turns, compared_with="engine without guards")


def step_2(repeats: int) -> Result:
    """Measure the guards with two processes, where they communicate."""
    return step(repeats, processes=2) | {"name": "step-2"}


def share(repeats: int) -> Result:
    """Measure the share of the guards in a step of 20 ms."""
    batch = _BATCH["20 ms"]
    sides: dict[str, Body] = {}
    processes = {}
    for number in (1, 2):
        suffix = f", {number} process{'es' * (number > 1)}"
        sides["bare torch loop" + suffix] = partial(bare, batch_size=batch * number)
        sides["engine without guards" + suffix] = partial(engine, batch_size=batch * number, guards=())
        sides["engine, all guards" + suffix] = partial(engine, batch_size=batch * number)
        processes |= {name: number for name in sides if name.endswith(suffix)}
    turns = take_turns(sides, processes=processes, steps=50, repeats=repeats)
    goals = []
    for number in (1, 2):
        suffix = f", {number} process{'es' * (number > 1)}"
        pairs = zip(turns["engine, all guards" + suffix], turns["engine without guards" + suffix], strict=True)
        found = median(on.cpu / off.cpu - 1 for on, off in pairs)
        goals.append({"text": f"guards cost at most 3 % of a step{suffix}", "found": found, "met": found <= 0.03})
    return _result("share", "A step of about 20 ms", turns) | {"goals": goals}


def _result(name: str, title: str, turns: dict[str, list[Turn]], compared_with: str | None = None) -> Result:
    sides = [
        {"name": side, "cpu": [turn.cpu for turn in measured], "wall": [turn.wall for turn in measured]}
        for side, measured in turns.items()
    ]
    return {"name": name, "title": title, "compared_with": compared_with, "sides": sides, "goals": []}


def table(result: Result) -> Table:
    """Return a table with a row per side; differences and ratios are computed within a turn."""
    sheet = Table(box=box.SIMPLE_HEAD, title=result["title"], title_justify="left", title_style="bold")
    sheet.add_column("")
    headings = ["CPU ms per step", "wall ms per step"]
    base = next((side for side in result["sides"] if side["name"] == result["compared_with"]), None)
    if base:
        headings += ["CPU us more", "times as fast (wall)"]
    for heading in headings:
        sheet.add_column(heading, justify="right", no_wrap=True)
    for side in result["sides"]:
        cells = [spread([1e3 * seconds for seconds in side[clock]]) for clock in ("cpu", "wall")]
        if base and side is not base:
            more = [1e6 * (ours - theirs) for ours, theirs in zip(side["cpu"], base["cpu"], strict=True)]
            cells.append(f"{median(more):+.0f} ({min(more):+.0f} to {max(more):+.0f})")
            cells.append(spread([theirs / ours for ours, theirs in zip(side["wall"], base["wall"], strict=True)]))
        sheet.add_row(side["name"], *cells)
    for goal in result["goals"]:
        state = "met" if goal["met"] else "[red]missed[/red]"
        sheet.add_row(f"goal: {goal['text']}: {state} ({goal['found']:.4g})")
    return sheet

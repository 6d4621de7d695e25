"""Measures the parts of the benchmark; each is a table of variants."""

import itertools
from functools import partial
from statistics import median
from typing import Any

from rich import box
from rich.table import Table

from benchmarks.engine.interleaving import Body, Measurement, take_turns
from benchmarks.engine.mlp import BATCH_SIZES
from benchmarks.engine.trainings import GUARDS, bare, engine, plain_lightning, with_accelerate
from benchmarks.environment import ratios, spread

Result = dict[str, Any]
"""Measurements of a part, ready for JSON: name, title, and the seconds per step of each variant's turns."""

BARE, ENGINE = "bare torch loop", "engine, all guards"

_GOALS = {(1, "5 ms"): ("us", 500), (1, "20 ms"): ("%", 5), (2, "20 ms"): ("%", 8)}
"""Most that the engine's step may cost above the bare loop's, by processes and size."""


def step(repeats: int, processes: int = 1) -> Result:
    """Measure each guard alone, in microseconds per step above the engine without guards."""
    batch = BATCH_SIZES["5 ms"] * processes
    variants: dict[str, Body] = {
        BARE: partial(bare, batch_size=batch),
        "plain Lightning": partial(plain_lightning, batch_size=batch),
        "engine without guards": partial(engine, batch_size=batch, guards=()),
    }
    for guard in GUARDS:
        variants[f"engine, {guard}"] = partial(engine, batch_size=batch, guards=(guard,))
    variants[ENGINE] = partial(engine, batch_size=batch)
    turns = take_turns(variants, processes=dict.fromkeys(variants, processes), steps=200, repeats=repeats)
    title = f"A small step, {processes} process{'es' * (processes > 1)}"
    return _result("step", title, turns, compared_with="engine without guards")


def step_2(repeats: int) -> Result:
    """Measure the guards with two processes, where they communicate."""
    return step(repeats, processes=2) | {"name": "step-2"}


def share(repeats: int) -> Result:
    """Measure how much more a step costs than in a bare loop: with Accelerate, in plain Lightning, in the engine."""
    turns: dict[str, list[Measurement]] = {}
    bases: dict[str, str] = {}
    goals = []
    # The variants of a size alternate; all at once need 20 GB.
    for number, size in itertools.product((1, 2), BATCH_SIZES):
        suffix, batch = _suffix(number, size), BATCH_SIZES[size] * number
        variants: dict[str, Body] = {
            BARE + suffix: partial(bare, batch_size=batch),
            "Accelerate" + suffix: partial(with_accelerate, batch_size=batch),
            "plain Lightning" + suffix: partial(plain_lightning, batch_size=batch),
            "engine without guards" + suffix: partial(engine, batch_size=batch, guards=()),
            ENGINE + suffix: partial(engine, batch_size=batch),
        }
        turns |= take_turns(variants, processes=dict.fromkeys(variants, number), steps=50, repeats=repeats)
        # The first variant of a size is the bare loop, to which the others are compared.
        bases |= dict.fromkeys(list(variants)[1:], BARE + suffix)
    for (number, size), (unit, limit) in _GOALS.items():
        suffix = _suffix(number, size)
        pairs = list(zip(turns[ENGINE + suffix], turns[BARE + suffix], strict=True))
        if unit == "us":
            found = median(1e6 * (ours.cpu - theirs.cpu) for ours, theirs in pairs)
        else:
            found = median(100 * (ours.cpu / theirs.cpu - 1) for ours, theirs in pairs)
        text = f"the engine and all guards cost at most {limit} {unit} of a step{suffix}"
        goals.append({"text": text, "found": found, "met": found <= limit})
    result = _result("share", "Steps beside those of a bare loop; the CPU time is that of all processes", turns)
    return result | {"bases": bases, "goals": goals}


def _suffix(processes: int, size: str) -> str:
    return f", {size}, {processes} process{'es' * (processes > 1)}"


def _result(name: str, title: str, turns: dict[str, list[Measurement]], compared_with: str | None = None) -> Result:
    variants = [
        {"name": variant, "cpu": [turn.cpu for turn in measured], "wall": [turn.wall for turn in measured]}
        for variant, measured in turns.items()
    ]
    bases = {variant: compared_with for variant in turns if variant != compared_with} if compared_with else {}
    return {"name": name, "title": title, "bases": bases, "sides": variants, "goals": []}


def table(result: Result) -> Table:
    """Return a table with a row per variant; differences and ratios are computed within a turn."""
    sheet = Table(box=box.SIMPLE_HEAD, title=result["title"], title_justify="left", title_style="bold")
    sheet.add_column("")
    headings = ["CPU ms per step", "wall ms per step"]
    by_name = {variant["name"]: variant for variant in result["sides"]}
    if result["bases"]:
        headings += ["CPU us more", "CPU time, ratio"]
    for heading in headings:
        sheet.add_column(heading, justify="right", no_wrap=True)
    for name, variant in by_name.items():
        cells = [spread([1e3 * seconds for seconds in variant[clock]]) for clock in ("cpu", "wall")]
        if name in result["bases"]:
            base = by_name[result["bases"][name]]
            more = [1e6 * (ours - theirs) for ours, theirs in zip(variant["cpu"], base["cpu"], strict=True)]
            cells.append(f"{median(more):+.0f} ({min(more):+.0f} to {max(more):+.0f})")
            cells.append(spread(ratios(variant["cpu"], base["cpu"])))
        sheet.add_row(name, *cells)
    for goal in result["goals"]:
        state = "met" if goal["met"] else "[red]missed[/red]"
        sheet.add_row(f"goal: {goal['text']}: {state} ({goal['found']:.4g})")
    return sheet

"""Formats measurements as a table; `summary` is also written as JSON."""

from statistics import median
from typing import Any

from rich import box
from rich.table import Table

from benchmarks.environment import number, spread
from benchmarks.recommender.comparisons import Comparison
from benchmarks.recommender.measure import Measured

_SMALLEST = 4 << 20
"""Bytes. Smaller values are noise of the allocator: they have no ratio and are raised to this value in others."""

Result = dict[str, Any]
"""Measurements of a comparison, ready for JSON; see `summary`."""


def summary(comparison: Comparison, measured: dict[str, Measured]) -> Result:
    """Return all turns of all variants in seconds per unit; `times_less`: the first variant's value over this one's."""
    first = next(iter(measured.values()))
    variants = [_variant(name, variant, first if variant is not first else None) for name, variant in measured.items()]
    result = {"name": comparison.name, "title": comparison.title, "unit": comparison.unit, "sides": variants}
    note = comparison.note() if comparison.note else ""
    return result | {"goals": _goals(comparison.goals, variants[-1]), "note": note}


def table(results: list[Result], environment: dict[str, Any]) -> Table:
    """Return a table of medians with minimum and maximum."""
    caption = (
        f"Median (smallest to largest) of {environment['repeats']} turns. Memory: peak above what the process held "
        "before. 'x': how many times less than the line that it is compared with.\n"
        f"{environment['processor']}, {environment['cores']} cores, 1 thread a variant, load "
        f"{environment['load'][0]:.1f} at the start; Python {environment['python']}, torch "
        f"{environment['torch']}, commit {environment['commit']}"
    )
    sheet = Table(box=box.SIMPLE_HEAD, caption=caption, caption_justify="left")
    sheet.add_column("")
    for heading in ("CPU ms", "per CPU s", "wall ms", "memory"):
        sheet.add_column(heading, justify="right", no_wrap=True)
    for result in results:
        sheet.add_row(f"[bold]{result['title']}[/bold] (one {result['unit']})")
        for variant in result["sides"]:
            _add_variant(sheet, variant)
        if result["note"]:
            sheet.add_row(f"  {result['note']}")
        for goal in result["goals"]:
            sheet.add_row(f"  goal: {goal['text']}: {'met' if goal['met'] else '[red]missed[/red]'}")
        sheet.add_section()
    return sheet


def _variant(name: str, variant: Measured, first: Measured | None) -> Result:
    result: Result = {
        "name": name,
        "cpu": [turn.cpu for turn in variant.turns],
        "wall": [turn.wall for turn in variant.turns],
        "waiting": [turn.waited_share for turn in variant.turns],
        "memory": variant.memory,
    }
    if first is not None:
        pairs = list(zip(first.turns, variant.turns, strict=True))
        result["times_less"] = {
            "cpu": [theirs.cpu / ours.cpu for theirs, ours in pairs],
            "wall": [theirs.wall / ours.wall for theirs, ours in pairs],
            # Below 4 MiB a difference is the allocator's, not the work's.
            "memory": first.memory / max(variant.memory, _SMALLEST) if first.memory > _SMALLEST else None,
        }
    return result


def _goals(goals: dict[str, float], variant: Result) -> list[Result]:
    outcomes = []
    for kind, bound in goals.items():
        if kind == "waiting":
            found = median(variant["waiting"])
            text, met = f"waits at most {bound:.0%} of the time, waited {found:.2%}", found <= bound
        else:
            found = median(variant["times_less"][kind]) if kind == "cpu" else variant["times_less"][kind]
            text, met = f"at least {bound:g} times less {'CPU time' if kind == 'cpu' else kind}", (found or 0) >= bound
        outcomes.append({"text": text, "found": found, "met": met})
    return outcomes


def _add_variant(sheet: Table, variant: Result) -> None:
    rates = [1 / seconds for seconds in variant["cpu"]]
    milliseconds = ([1000 * seconds for seconds in variant[clock]] for clock in ("cpu", "wall"))
    cpu, wall = (spread(values) for values in milliseconds)
    sheet.add_row(f"  {variant['name']}", cpu, number(median(rates)), wall, f"{variant['memory'] / 2**20:,.0f} MiB")
    if "times_less" in variant:
        less = variant["times_less"]
        memory = f"x {number(less['memory'])}" if less["memory"] else ""
        sheet.add_row("", f"x {spread(less['cpu'])}", "", f"x {spread(less['wall'])}", memory, style="green")

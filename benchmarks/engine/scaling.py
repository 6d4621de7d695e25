"""Measures the same global batch on one core and on two, with Lockstep and with its peers (see baselines.py)."""

from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from rich import box
from rich.table import Table

from benchmarks.engine.baselines import accelerate_loop, ddp_loop
from benchmarks.engine.interleaving import Body, Measurement, take_turns
from benchmarks.engine.trainings import recommender, write_interactions
from benchmarks.environment import goals_reached, spread

_BATCH = 128
_LIMIT = "two runs of ours (machine's limit)"
_OURS, _BY_HAND, _ACCELERATE = "ours", "torch DDP loop by hand", "Accelerate"


def scaling(repeats: int, steps: int = 4) -> dict[str, Any]:
    """Return the measurements of the part, ready for JSON: the seconds per global batch of each variant's turns."""
    with TemporaryDirectory() as folder:
        interactions = write_interactions(Path(folder))
        bodies: dict[str, Body] = {
            _OURS: partial(recommender, interactions=interactions),
            _BY_HAND: partial(ddp_loop, interactions=interactions),
            _ACCELERATE: partial(accelerate_loop, interactions=interactions),
        }
        variants = {_variant(way, number): body for way, body in bodies.items() for number in (1, 2)}
        processes = {_variant(way, number): number for way in bodies for number in (1, 2)}
        # With two independent runs at once, because cores share caches and memory: twice as fast may be out of reach.
        turns = take_turns(variants, processes=processes, steps=steps, repeats=repeats, apart=_LIMIT, warm_up=4)
    return result_of(turns)


def result_of(turns: dict[str, list[Measurement]]) -> dict[str, Any]:
    """Return the result of `scaling` from the turns of every variant."""
    variants: list[dict[str, Any]] = []
    for name, measured in turns.items():
        way = _OURS if name == _LIMIT else name.rsplit(",", 1)[0]
        alone = turns[_variant(way, 1)]
        variants.append(
            {
                "name": name,
                "cpu": [turn.cpu for turn in measured],
                "wall": [turn.wall for turn in measured],
                "samples_per_second": [_BATCH / turn.wall for turn in measured],
                "times_as_fast_as_alone": [one.wall / turn.wall for one, turn in zip(alone, measured, strict=True)],
                "ours_per_cpu_second": _ours_per_cpu_second(turns, name, measured),
            }
        )
    found = {variant["name"]: median(variant["times_as_fast_as_alone"]) for variant in variants}
    goal = found[_variant(_OURS, 2)]
    goals = [{"text": "two processes are at least 1.85 times as fast", "found": goal, "met": goal >= 1.85}]
    return {"name": "scaling", "title": "SASRec, global batch 128, L 200", "sides": variants, "goals": goals}


def _ours_per_cpu_second(turns: dict[str, list[Measurement]], name: str, measured: list[Measurement]) -> list[float]:
    """Return Lockstep's samples per CPU second over the variant's, with the same number of processes."""
    number = 2 if name.endswith("2 processes") else 1
    return [turn.cpu / ours.cpu for ours, turn in zip(turns[_variant(_OURS, number)], measured, strict=True)]


def _variant(way: str, processes: int) -> str:
    return f"{way}, {processes} process{'es' * (processes > 1)}"


def table(result: dict[str, Any]) -> Table:
    """Return a table with a row per variant; ratios are computed within a turn."""
    title, goals = result["title"], goals_reached(result["goals"])
    sheet = Table(
        box=box.SIMPLE_HEAD,
        title=title,
        title_justify="left",
        title_style="bold",
        caption=goals,
        caption_justify="left",
    )
    sheet.add_column("", no_wrap=True)
    for heading in ("CPU ms per step", "samples/s (wall)", "x of 1 process", "ours: samples per CPU s, x"):
        sheet.add_column(heading, justify="right", no_wrap=True)
    for variant in result["sides"]:
        sheet.add_row(
            variant["name"],
            spread([1e3 * seconds for seconds in variant["cpu"]]),
            spread(variant["samples_per_second"]),
            spread(variant["times_as_fast_as_alone"]),
            spread(variant["ours_per_cpu_second"]),
        )
    return sheet

"""Measures tokens per second of Lockstep's training and of other loops around the same model, on the same samples."""

from functools import partial
from statistics import median
from typing import Any

from rich import box
from rich.table import Table

from benchmarks.engine.interleaving import Body, take_turns
from benchmarks.environment import goals_reached, number, ratios, spread
from benchmarks.vision_language import baselines
from benchmarks.vision_language.models import SMALL, Layout, Sizes, amounts_of_turns
from benchmarks.vision_language.trainings import run

_STEPS, _WARM_UP = 4, 3  # of a turn, and before the first turn
PEER = "Hugging Face Trainer"
GOALS = {"Lockstep, one chat per row": 1.0, "Lockstep, packed": 1.8}
"""Goals, as ratios to the peer's tokens per CPU second."""


def variants_of(sizes: Sizes) -> dict[str, Body]:
    """Return all trainings; ratios are to the first."""
    return {
        PEER: partial(baselines.hugging_face, sizes=sizes),
        "Accelerate": partial(baselines.accelerate, sizes=sizes),
        "bare torch loop": partial(baselines.bare, sizes=sizes),
        "Lockstep, one chat per row": partial(run, sizes=sizes, layout=Layout()),
        "Lockstep, packed": partial(run, sizes=sizes, layout=Layout(packed=True)),
        "Lockstep, packed, activation checkpointing": partial(
            run, sizes=sizes, layout=Layout(packed=True), activation_checkpointing=True
        ),
    }


def measure(
    repeats: int, sizes: Sizes = SMALL, steps: int = _STEPS, variants: dict[str, Body] | None = None
) -> dict[str, Any]:
    """Measure each variant's tokens per second, tokens per CPU second and peak memory in each turn."""
    variants = variants or variants_of(sizes)
    turns = take_turns(variants, processes=dict.fromkeys(variants, 1), steps=steps, repeats=repeats, warm_up=_WARM_UP)
    # The same samples for all variants, so tokens are counted once, from Lockstep's rows.
    held = [turn["tokens"] for turn in amounts_of_turns(sizes, Layout(), repeats, steps, _WARM_UP)]
    rows: list[dict[str, Any]] = [
        {
            "name": name,
            "tokens_per_second": [tokens / (turn.wall * steps) for turn, tokens in zip(measured, held, strict=True)],
            "tokens_per_cpu_second": [tokens / (turn.cpu * steps) for turn, tokens in zip(measured, held, strict=True)],
            "memory": max(turn.memory for turn in measured),
        }
        for name, measured in turns.items()
    ]
    goals = []
    for row in rows:
        if bound := GOALS.get(row["name"]):
            # The ratio is of CPU time within a turn, which other programs on the machine change least.
            found = median(ratios(row["tokens_per_cpu_second"], rows[0]["tokens_per_cpu_second"]))
            text = f"{row['name']}: at least {bound:g} times the tokens per CPU second of {PEER}"
            goals.append({"text": text, "found": found, "met": found >= bound})
    return {"name": "trainers", "batch_size": sizes.batch_size, "sides": rows, "goals": goals}


def table(found: dict[str, Any]) -> Table:
    """Return a table with a row per variant; ratios of CPU time are computed within a turn."""
    title = f"The same model and samples, {found['batch_size']} per step, fp32, one thread"
    sheet = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", title_style="bold")
    sheet.add_column("")
    for heading in ("tokens/s", "tokens/CPU-s", f"x {PEER} (CPU)", "peak memory"):
        sheet.add_column(heading, justify="right", no_wrap=True)
    for variant in found["sides"]:
        sheet.add_row(
            variant["name"],
            spread(variant["tokens_per_second"]),
            number(median(variant["tokens_per_cpu_second"])),
            spread(ratios(variant["tokens_per_cpu_second"], found["sides"][0]["tokens_per_cpu_second"])),
            f"{variant['memory'] / 2**20:,.0f} MiB",
        )
    sheet.caption, sheet.caption_justify = goals_reached(found["goals"]), "left"
    return sheet

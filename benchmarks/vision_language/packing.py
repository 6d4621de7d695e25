"""Measures tokens per second with one chat per row, by similar length, and packed; same samples, same loss."""

from functools import partial
from statistics import median
from typing import Any

import torch
from rich import box
from rich.table import Table

from benchmarks.engine.interleaving import Body, take_turns
from benchmarks.environment import goals_reached, number, ratios, spread
from benchmarks.vision_language.models import SMALL, Layout, Sizes, amounts_of_turns, built
from benchmarks.vision_language.trainings import ours

LAYOUTS = {
    "one chat per row": Layout(),
    "4 groups of similar length": Layout(length_groups=4),
    "packed": Layout(packed=True),
}
_STEPS, _WARM_UP = 4, 3  # of a turn, and before the first turn
GOAL = 1.8


def measure(repeats: int, sizes: Sizes = SMALL, steps: int = _STEPS) -> dict[str, Any]:
    """Measure each layout: tokens per second in each turn, share of tokens without padding, loss and count."""
    variants: dict[str, Body] = {name: partial(ours, sizes=sizes, layout=layout) for name, layout in LAYOUTS.items()}
    ones = dict.fromkeys(variants, 1)
    turns = take_turns(variants, processes=ones, steps=steps, repeats=repeats, warm_up=_WARM_UP)
    rows = []
    for name, layout in LAYOUTS.items():
        amounts = amounts_of_turns(sizes, layout, repeats, steps, _WARM_UP)
        loss, count = loss_of(sizes, layout)
        measured = list(zip(turns[name], amounts, strict=True))
        rows.append(
            {
                "name": name,
                "tokens_per_second": [held["tokens"] / (turn.wall * steps) for turn, held in measured],
                "tokens_per_cpu_second": [held["tokens"] / (turn.cpu * steps) for turn, held in measured],
                "real": sum(held["tokens"] for held in amounts) / sum(held["positions"] for held in amounts),
                "loss": loss,
                "count": count,
            }
        )
    shape = {"batch_size": sizes.batch_size, "packed_length": sizes.packed_length}
    return {"name": "packing", **shape, "sides": rows, "goals": _goals(rows)}


def _goals(variants: list[dict[str, Any]]) -> list[dict[str, Any]]:
    base, packed = variants[0], variants[-1]
    faster = median(ratios(packed["tokens_per_cpu_second"], base["tokens_per_cpu_second"]))
    # A faster layout that computes another loss would not be a gain.
    apart = max(abs(variant["loss"] / base["loss"] - 1) for variant in variants)
    alike = all(variant["count"] == base["count"] for variant in variants) and apart < 1e-5
    return [
        {"text": f"packed at least {GOAL} times as fast", "found": faster, "met": faster >= GOAL},
        {"text": "equal loss to 1e-5, of as many terms", "found": apart, "met": alike},
    ]


def loss_of(sizes: Sizes, layout: Layout, batches: int = 3) -> tuple[float, int]:
    """Return the sum of the loss terms of the first samples, before training, and their number."""
    module, data = built(sizes, layout)
    total, count = 0.0, 0
    with torch.no_grad():
        for _, batch in zip(range(batches), data.train_dataloader(), strict=False):
            loss = module.training_loss(batch)
            total, count = total + float(loss.total), count + int(loss.terms)
    return total, count


def table(found: dict[str, Any]) -> Table:
    """Return a table with a row per layout; ratios of CPU time are computed within a turn."""
    title = f"A mixture of lengths, {found['batch_size']} samples per step, rows of {found['packed_length']} tokens"
    sheet = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", title_style="bold")
    sheet.add_column("")
    for heading in ("tokens/s", "tokens/CPU-s", "times as fast (CPU)", "real", "loss", "terms"):
        sheet.add_column(heading, justify="right", no_wrap=True)
    base = found["sides"][0]
    for variant in found["sides"]:
        faster = ratios(variant["tokens_per_cpu_second"], base["tokens_per_cpu_second"])
        sheet.add_row(
            variant["name"],
            spread(variant["tokens_per_second"]),
            number(median(variant["tokens_per_cpu_second"])),
            "" if variant is base else spread(faster),
            f"{variant['real']:.0%}",
            f"{variant['loss'] / variant['count']:.6f}",
            str(variant["count"]),
        )
    sheet.caption, sheet.caption_justify = goals_reached(found["goals"]), "left"
    return sheet

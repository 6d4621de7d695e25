"""Prints a plan as tables or JSON: memory by recipe and model, and the options of each recipe."""

import json
from collections.abc import Mapping, Sequence
from typing import TextIO

from rich import box
from rich.console import Console
from rich.table import Table

from commands.doctor.model_plan.cluster import Cluster
from commands.doctor.model_plan.plan import Row
from commands.doctor.model_plan.recipes import COMMON
from commands.doctor.training.memory_prediction import USABLE_SHARE
from engine.system.installation import PROGRAM

_WIDTH = 120
_GIGABYTE = 10**9


def plan_as_json(cluster: Cluster, tokens: int, plans: Mapping[str, Sequence[Row]]) -> str:
    """Return a JSON object: `{"cluster": {...}, "tokens": ..., "options": ..., "rows": [{"model": ..., ...}]}`."""
    rows = [
        {
            "model": model, "training": row.recipe.name, "gb": round(row.size / _GIGABYTE, 1), "fits": row.fits,
            "recommended": row.recommended, "host_gb": round(row.host / _GIGABYTE, 1), "options": row.recipe.options,
        }
        for model, plan in plans.items()
        for row in plan
    ]  # fmt: skip
    report = {"cluster": cluster._asdict(), "tokens": tokens, "options": COMMON, "rows": rows}
    return json.dumps(report, indent=2, ensure_ascii=False)


def print_plan(cluster: Cluster, tokens: int, plans: Mapping[str, Sequence[Row]], file: TextIO | None = None) -> None:
    """Print the predicted memory and what to set.

    Args:
        cluster: the GPUs.
        tokens: positions of a micro-batch.
        plans: {model: its rows}, with the same recipes for each.
        file: output; None: standard output.
    """
    console = Console(file=file, highlight=False, width=_WIDTH)
    console.print(_memory(cluster, plans))
    console.print(
        f"GB (10^9 bytes) of a GPU at the peak of a step of {tokens:,} tokens. In brackets: does not fit in "
        f"{USABLE_SHARE:.0%} of {cluster.gb} GB.\n* recommended: the first that fits.\n"
    )
    console.print(f"Add to `{PROGRAM} fit --config configs/FAMILY/X.yaml`:")
    for row in next(iter(plans.values())):
        console.print(f"{row.recipe.name}: {row.recipe.options}", soft_wrap=True)
    launch = f"--trainer.num_nodes {cluster.nodes} --trainer.devices {cluster.gpus}"
    console.print(f"and, behind each: {COMMON} {launch}", soft_wrap=True)


def _memory(cluster: Cluster, plans: Mapping[str, Sequence[Row]]) -> Table:
    title = f"{_count_of(cluster.nodes, 'node')} with {_count_of(cluster.gpus, 'GPU')} of {cluster.gb} GB"
    sheet = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left")
    sheet.add_column("training", no_wrap=True)
    for model in plans:
        sheet.add_column(model, justify="right", overflow="fold")
    for rows in zip(*plans.values(), strict=True):
        sheet.add_row(rows[0].recipe.name, *map(_format_cell, rows))
        if any(row.host for row in rows):
            sheet.add_row("  host memory of a node", *(f"{row.host / _GIGABYTE:,.1f}  " for row in rows), style="dim")
    return sheet


def _format_cell(row: Row) -> str:
    number = f"{row.size / _GIGABYTE:,.1f}"
    if not row.fits:
        return f"({number}) "
    return f"{number} *" if row.recommended else f"{number}  "


def _count_of(number: int, word: str) -> str:
    return f"{number} {word}{'s' if number > 1 else ''}"

"""Builds the tables of the measurements."""

from statistics import median
from typing import Any

from rich import box
from rich.table import Table

from benchmarks.environment import number, ratios, spread

_NOTES = {
    "learn": "A row of RecBole has a single target, so a step trains on fewer targets.",
    "train": (
        "A row of RecBole is a prefix of a history, whose last item is learnt; a row of the others is a user's last "
        "events, all of which are.\nPadding: RecBole and RecTools compute every row at length L; ours computes each "
        "batch in parts of similar length.\n'ours': its rate per CPU second over the other's, per turn. "
        "Epoch: CPU minutes at this rate on 6,040 users.\nMemory: the whole process at its peak, with libraries and "
        "data. Ours runs with all its guards, and clips gradients."
    ),
    "evaluate": (
        "RecBole ranks all items, including seen items; RecTools and ours exclude items that the user has seen.\n"
        "RecTools returns lists of ten items, the others ranks.\nMemory: the whole process at its peak, with libraries "
        "and data."
    ),
}


def table(result: dict[str, Any]) -> Table:
    """Return a table with a row per variant."""
    sheet = Table(
        box=box.SIMPLE_HEAD,
        title=result["title"],
        title_justify="left",
        title_style="bold",
        caption=_NOTES[result["name"]],
        caption_justify="left",
    )
    sheet.add_column("")
    sheet.add_column("torch")
    headings, lines = {"learn": _learn, "train": _train, "evaluate": _evaluate}[result["name"]](result["sides"])
    for heading in headings:
        sheet.add_column(heading, justify="right", no_wrap=True)
    for variant, cells in zip(result["sides"], lines, strict=True):
        sheet.add_row(f"{variant['name']} {variant['package']}".strip(), variant["torch"], *cells)
    return sheet


def _learn(variants: list[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    return ["NDCG@10"], [[f"{variant['turns'][0]['ndcg']:.3f}"] for variant in variants]


def _train(variants: list[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    lines = []
    for variant in variants:
        rows, targets = rates(variant, "rows"), rates(variant, "targets")
        # The time of an epoch follows from rows, not targets: a package's epoch has more or fewer rows than ours.
        minutes = variant["epoch"]["rows"] / median(rows) / 60
        lines.append(
            [spread(targets), _ours(variant, variants, "targets"), spread(rows), number(minutes), _memory(variant)]
        )
    return ["targets / CPU s", "ours", "rows / CPU s", "epoch", "memory"], lines


def _evaluate(variants: list[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    lines = [
        [spread(rates(variant, "users")), _ours(variant, variants, "users"), _memory(variant)] for variant in variants
    ]
    return ["users / CPU s", "ours", "memory"], lines


def rates(variant: dict[str, Any], amount: str) -> list[float]:
    """Return amounts per CPU second of each turn."""
    return [turn[amount] / turn["cpu"] for turn in variant["turns"]]


def _ours(variant: dict[str, Any], variants: list[dict[str, Any]], amount: str) -> str:
    ours = next((other for other in variants if other["name"] == "ours"), variant)
    if ours is variant:
        return ""
    return "x " + spread(ratios(rates(ours, amount), rates(variant, amount)))


def _memory(variant: dict[str, Any]) -> str:
    most = max(turn["memory"] for turn in variant["turns"])
    return f"{most / 2**20:,.0f} MiB" if most else "not known here"

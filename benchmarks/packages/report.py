"""Builds the tables of the measurements."""

from statistics import median
from typing import Any

from rich import box
from rich.table import Table

from benchmarks.environment import number, spread

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
    """Return a table with a row per side."""
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
    for side, cells in zip(result["sides"], lines, strict=True):
        sheet.add_row(f"{side['name']} {side['package']}".strip(), side["torch"], *cells)
    return sheet


def _learn(sides: list[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    return ["NDCG@10"], [[f"{side['turns'][0]['ndcg']:.3f}"] for side in sides]


def _train(sides: list[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    lines = []
    for side in sides:
        rows, targets = rates(side, "rows"), rates(side, "targets")
        # The time of an epoch follows from rows, not targets: a package's epoch has more or fewer rows than ours.
        minutes = side["epoch"]["rows"] / median(rows) / 60
        lines.append([spread(targets), _ours(side, sides, "targets"), spread(rows), number(minutes), _memory(side)])
    return ["targets / CPU s", "ours", "rows / CPU s", "epoch", "memory"], lines


def _evaluate(sides: list[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    lines = [[spread(rates(side, "users")), _ours(side, sides, "users"), _memory(side)] for side in sides]
    return ["users / CPU s", "ours", "memory"], lines


def rates(side: dict[str, Any], amount: str) -> list[float]:
    """Return amounts per CPU second of each turn."""
    return [turn[amount] / turn["cpu"] for turn in side["turns"]]


def _ours(side: dict[str, Any], sides: list[dict[str, Any]], amount: str) -> str:
    ours = next((other for other in sides if other["name"] == "ours"), side)
    if ours is side:
        return ""
    return "x " + spread([a / b for a, b in zip(rates(ours, amount), rates(side, amount), strict=True)])


def _memory(side: dict[str, Any]) -> str:
    most = max(turn["memory"] for turn in side["turns"])
    return f"{most / 2**20:,.0f} MiB" if most else "not known here"

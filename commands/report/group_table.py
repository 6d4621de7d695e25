"""Tabulates a recommender's metrics by group of users and items, with confidence intervals.

numpy and rich are imported only if the run has a file of ranks.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from commands.report.comparison.saved_ranks import STAGES, read_ranks
from commands.report.metric_series import OtherSettingsError

if TYPE_CHECKING:
    from engine.statistics.bootstrap import Interval
    from lightning_modules.recommender.item_ranks.rank_file import UserRanks


class GroupTable(NamedTuple):
    """Texts of a table, for the console and for the page."""

    title: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]


def group_tables(folder: Path, cutoffs: Sequence[int]) -> tuple[list[GroupTable], str]:
    """Return tables for each cutoff of the test, or of the validation without a test, and a remark.

    The first table of a cutoff has the metrics of the ranks, and the second those of the recommended items, if the
    evaluation has kept as many of them.

    Args:
        folder: run directory.
        cutoffs: values of k.

    Returns:
        No tables and no remark without a file of ranks.

    Raises:
        ValueError: a file of ranks is truncated or has changed.
        OSError: a file cannot be read.
    """
    try:
        ranks_by_stage = read_ranks(folder)
    except OtherSettingsError as error:
        return [], f"no metrics by group: {error}"
    stage = next((stage for stage in STAGES if stage in ranks_by_stage), None)
    if stage is None:
        return [], ""
    ranks, tables = ranks_by_stage[stage], []
    kept = 0 if ranks.recommended is None else ranks.recommended.items.shape[1]
    for cutoff in cutoffs:
        tables.append(_rank_table(ranks, cutoff))
        if cutoff <= kept:
            tables.append(_recommendation_table(ranks, cutoff))
    beyond = [str(cutoff) for cutoff in cutoffs if cutoff > kept]
    if not kept or not beyond:
        return tables, ""
    remark = (
        f"no coverage, novelty and popularity at {' and '.join(beyond)}: the evaluation kept the best {kept} items of "
        "each user; test again with a larger model.init_args.top_k, at most the number of items"
    )
    return tables, remark


def _rank_table(ranks: "UserRanks", cutoff: int) -> GroupTable:
    from lightning_modules.recommender.item_ranks.rank_metrics import gains, metric_intervals
    from lightning_modules.recommender.item_ranks.user_groups import user_groups

    table, rows = gains((cutoff,)), []
    for group in user_groups(ranks):
        intervals = metric_intervals(ranks.rank[group.rows], table).values()
        rows.append([group.name, f"{len(group.rows):,}", *(_cell(interval, 4) for interval in intervals)])
    title = f"{_groups_of(ranks)}, with 95 % bootstrap intervals"
    return GroupTable(title, ["", "users", *(_protocol(ranks) + name for name in table.names)], rows)


def _recommendation_table(ranks: "UserRanks", cutoff: int) -> GroupTable:
    from lightning_modules.recommender.item_ranks.recommendation_metrics import recommendation_metrics
    from lightning_modules.recommender.item_ranks.user_groups import user_groups

    assert ranks.recommended is not None, "the caller has checked it"
    rows = []
    for group in user_groups(ranks):
        coverage, novelty, popularity = recommendation_metrics(ranks.recommended, group.rows, cutoff)
        cells = f"{coverage:.4f}", _cell(novelty, 2), _cell(popularity, 1)
        rows.append([group.name, f"{len(group.rows):,}", *cells])
    names = [f"{_protocol(ranks)}{name}@{cutoff}" for name in ("coverage", "novelty", "popularity")]
    title = (
        f"recommended items, {_groups_of(ranks)}, with 95 % bootstrap intervals; coverage is no mean over users "
        "and has none"
    )
    return GroupTable(title, ["", "users", *names], rows)


def _groups_of(ranks: "UserRanks") -> str:
    stage = "test" if ranks.header.stage == "test" else "validation"
    return f"{stage} by events of the history and training events of the target"


def _protocol(ranks: "UserRanks") -> str:
    return ranks.header.protocol and f"{ranks.header.protocol}/"


def _cell(interval: "Interval | None", digits: int) -> str:
    if interval is None:
        return ""
    value, low, high = (f"{number:,.{digits}f}" for number in interval)
    return f"{value} [{low}, {high}]"


def print_tables(tables: Sequence[GroupTable]) -> None:
    """Print the tables to the console."""
    if not tables:
        return
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    # Without a terminal, rich would cut the table to 80 columns.
    console = Console(width=None if sys.stdout.isatty() else 160)
    for table in tables:
        shown = Table(box=SIMPLE_HEAD, title=table.title, title_justify="left", title_style="bold")
        for head in table.heads:
            shown.add_column(head, justify="right" if head else "left")
        for row in table.rows:
            shown.add_row(*map(Text, row))  # a cell in brackets would be taken for a style
        console.print(shown)

"""Tabulates a recommender's metrics by group of users and items, with confidence intervals.

numpy and rich are imported only if the run has a file of ranks.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from commands.report.comparison.saved_ranks import STAGES, read_ranks
from commands.report.metric_series import OtherSettingsError


class GroupTable(NamedTuple):
    """Texts of a table, for the console and for the page."""

    title: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]


def group_tables(folder: Path, cutoffs: Sequence[int]) -> tuple[list[GroupTable], str]:
    """Return a table for each cutoff of the test, or of the validation without a test, and a remark.

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
    from lightning_modules.recommender.item_ranks.rank_metrics import gains, metric_intervals
    from lightning_modules.recommender.item_ranks.user_groups import user_groups

    ranks, tables = ranks_by_stage[stage], []
    protocol = ranks.header.protocol and f"{ranks.header.protocol}/"
    for cutoff in cutoffs:
        rows = []
        for group in user_groups(ranks):
            intervals = metric_intervals(group.rank, gains((cutoff,)))
            cells = [f"{value:.4f} [{low:.4f}, {high:.4f}]" for value, low, high in intervals.values()]
            rows.append([group.name, f"{len(group.rank):,}", *cells])
        title = (
            f"{'test' if stage == 'test' else 'validation'} by events of the history and training events of the "
            "target, with 95 % bootstrap intervals"
        )
        tables.append(GroupTable(title, ["", "users", *(protocol + name for name in intervals)], rows))
    return tables, ""


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

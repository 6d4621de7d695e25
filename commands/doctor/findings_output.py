"""Prints the findings: a table, a JSON object and an exit code."""

import json
import os
from collections.abc import Sequence
from typing import TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from commands.doctor.check import Finding, Status

EXIT_CODES: dict[Status, int] = {"ok": 0, "warn": 1, "fail": 2}
_HEADINGS: dict[Status, tuple[str, str]] = {
    "ok": ("OK", "green"),
    "warn": ("WARN", "yellow"),
    "fail": ("FAIL", "red"),
}
_FILE_WIDTH = 120
"""Columns if the output is not a terminal."""


def worst_status(findings: Sequence[Finding]) -> Status:
    """Return the worst status, which determines the exit code."""
    return max((finding.status for finding in findings), key=lambda status: EXIT_CODES[status], default="ok")


def findings_as_json(findings: Sequence[Finding]) -> str:
    """Return a JSON object: `{"status": ..., "exit_code": ..., "counts": {...}, "findings": [{"check": ..., ...}]}`."""
    status = worst_status(findings)
    report = {
        "status": status,
        "exit_code": EXIT_CODES[status],
        "counts": {each: sum(finding.status == each for finding in findings) for each in EXIT_CODES},
        "findings": [finding._asdict() for finding in findings],
    }
    return json.dumps(report, indent=2, ensure_ascii=False)


def print_table(findings: Sequence[Finding], file: TextIO | None = None, width: int | None = None) -> None:
    """Print the findings as a table: `ok` first and short, `fail` last, next to the prompt.

    Args:
        findings: findings of all checks.
        file: output; None: standard output.
        width: columns; None: the width of the terminal.
    """
    console = Console(file=file, highlight=False, width=width)
    if width is None and not console.is_terminal and "COLUMNS" not in os.environ:
        console = Console(file=file, highlight=False, width=_FILE_WIDTH)
    names = max((len(finding.check) for finding in findings), default=0)
    for status, (word, color) in _HEADINGS.items():
        group = [finding for finding in findings if finding.status == status]
        if not group:
            continue
        console.print()
        console.rule(Text(f"{word}  {len(group)}", style=f"bold {color}"), align="left", style=color)
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(style=color, width=4, no_wrap=True)
        table.add_column(style="bold", width=min(names, 20))
        table.add_column(overflow="fold")
        for number, finding in enumerate(group):
            if number and status != "ok":
                table.add_row()
            table.add_row(word, finding.check, Text(finding.found))
            for label, text, style in (("why", finding.why, "dim"), ("fix", finding.remedy, "cyan")):
                if text and status != "ok":
                    table.add_row("", "", _labeled_grid(label, text, style))
        console.print(table)
    console.print()
    console.print(_summary(findings))


def _labeled_grid(label: str, text: str, style: str) -> Table:
    """Return a grid in which a long text stays to the right of its label."""
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(style="bold", width=4, no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row(f"{label}:", Text(text, style=style))
    return grid


def _summary(findings: Sequence[Finding]) -> Text:
    status = worst_status(findings)
    counts = {each: sum(finding.status == each for finding in findings) for each in EXIT_CODES}
    summary = {
        "ok": "All checks passed: a training can start.",
        "warn": "A training can start; each WARN may slow it down, or stop it later.",
        "fail": "A training would stop, hang or be wrong: fix each FAIL first.",
    }[status]
    totals = ", ".join(f"{counts[each]} {_HEADINGS[each][0]}" for each in EXIT_CODES)
    return Text.assemble((summary, f"bold {_HEADINGS[status][1]}"), f" {totals}; exit code {EXIT_CODES[status]}.")

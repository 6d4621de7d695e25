"""Formats checks and tables with the standard library only."""

from typing import Any

from benchmarks.device.part import Check, ResultTable
from benchmarks.environment import number, spread


def format_checks(checks: list[Check]) -> str:
    """Return a line per check."""
    width = max((len(check.name) for check in checks), default=0)
    lines = [f"  {check.name:{width}}  {check.error:.1e} (at most {check.bound:.0e})" for check in checks]
    return "\n".join(["relative error beside float64:", *lines])


def format_table(table: ResultTable) -> str:
    """Return the table with aligned columns."""
    lines = [("", *table.headings), *((row.name, *map(_format_cell, row.cells)) for row in table.rows)]
    # Each column is as wide as its longest cell, the heading included.
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    body = ["  ".join(_aligned(line, widths)).rstrip() for line in lines]
    return "\n".join(["", table.title, *body, *([table.note] if table.note else [])])


def as_json(table: ResultTable) -> dict[str, Any]:
    """Return each row's cells by column name."""
    rows = [{"name": row.name, **dict(zip(table.headings, row.cells, strict=True))} for row in table.rows]
    return {"title": table.title, "rows": rows, "failures": table.failures, "note": table.note}


def _aligned(line: tuple[str, ...], widths: list[int]) -> list[str]:
    return [line[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True))]


def _format_cell(cell: list[float] | float | str) -> str:
    if isinstance(cell, str):
        return cell
    return spread(cell) if isinstance(cell, list) else number(cell)

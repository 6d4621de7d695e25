"""Finds ruled tables in PDFs: pdfplumber's cell detection on the lines and characters that PDFium extracts.

pdfplumber's own page reader takes most of a second per page and loses spaces between narrow letters.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from datamodules.document_qa.ingestion.readers.bounding_boxes import Box, contains_center, union
from datamodules.document_qa.ingestion.readers.pdf_objects import PageFrame, PageObject
from datamodules.document_qa.ingestion.readers.pdf_text import Character, join_lines, split_lines

_TOLERANCE = 3.0  # points: lines within this distance are merged, corners touch; pdfplumber's default
_SLANT = 0.5  # points: a line that is both wider and higher is neither horizontal nor vertical
_CORNERS = 4_000  # more belong to a drawing, not a table; the search time is quadratic


class DetectedTable(NamedTuple):
    """A table found by its ruling lines: a grid of boxes on the page."""

    box: Box
    rows: tuple[tuple[Box | None, ...], ...]  # None where a cell beside or above spans


def find_tables(drawn: Sequence[PageObject], frame: PageFrame, note: Callable[[str], None]) -> list[DetectedTable]:
    """Find grids of at least two rows and two columns.

    Args:
        drawn: objects of the page.
        frame: size of the page.
        note: receives a warning for a page with too many lines.
    """
    lines = list(_ruling_lines(drawn, frame))
    across = sum(line["orientation"] == "h" for line in lines)
    if across < 3 or len(lines) - across < 3:
        return []
    from pdfplumber.table import cells_to_tables, edges_to_intersections, intersections_to_cells, merge_edges

    edges = [
        edge
        for edge in merge_edges(lines, *[_TOLERANCE] * 4)
        if max(edge["x1"] - edge["x0"], edge["bottom"] - edge["top"]) >= _TOLERANCE
    ]
    across = sum(edge["orientation"] == "h" for edge in edges)
    if across * (len(edges) - across) > _CORNERS * 10:
        note("too many lines to search for tables")
        return []
    corners = edges_to_intersections(edges, _TOLERANCE, _TOLERANCE)
    if len(corners) > _CORNERS:
        note("too many lines to search for tables")
        return []
    tables = (_table_grid(cells, frame) for cells in cells_to_tables(intersections_to_cells(corners)))
    return [table for table in tables if len(table.rows) > 1 and len(table.rows[0]) > 1]


def table_text(table: DetectedTable, characters: Sequence[Character]) -> str:
    """Return the text of a table: one row per line, cells separated by " | "."""
    cells = [cell for row in table.rows for cell in row if cell is not None]
    letters: dict[Box, list[Character]] = {cell: [] for cell in cells}
    last: Box | None = None
    for character in characters:
        if character.box is None:  # white space belongs to the cell of the preceding character
            if last is not None:
                letters[last].append(character)
        elif last is None or not contains_center(last, character.box):
            last = next((cell for cell in cells if contains_center(cell, character.box)), None)
        if last is not None and character.box is not None:
            letters[last].append(character)
    words = {cell: join_lines([line.text for line in split_lines(inside)]) for cell, inside in letters.items()}
    texts = {cell: text.replace(" | ", "|") for cell, text in words.items()}
    return "\n".join(" | ".join("" if cell is None else texts[cell] for cell in row) for row in table.rows)


def _ruling_lines(drawn: Sequence[PageObject], frame: PageFrame) -> Iterator[dict[str, Any]]:
    """Yield lines in pdfplumber's format: in points from the page's top left."""
    for part in drawn:
        for left, top, right, bottom in part.lines:
            x0, x1, y0, y1 = left * frame.width, right * frame.width, top * frame.height, bottom * frame.height
            if y1 - y0 <= _SLANT < x1 - x0:
                yield _line("h", x0, y0, x1, y0)
            elif x1 - x0 <= _SLANT < y1 - y0:
                yield _line("v", x0, y0, x0, y1)


def _line(orientation: str, x0: float, top: float, x1: float, bottom: float) -> dict[str, Any]:
    return {
        "orientation": orientation, "x0": x0, "x1": x1, "top": top, "bottom": bottom,
        "width": x1 - x0, "height": bottom - top,
    }  # fmt: skip


def _table_grid(cells: list[Box], frame: PageFrame) -> DetectedTable:
    from pdfplumber.table import Table

    def share(cell: Box | None) -> Box | None:
        if cell is None:
            return None
        left, top, right, bottom = cell
        return left / frame.width, top / frame.height, right / frame.width, bottom / frame.height

    table = Table(None, cells)  # type: ignore[arg-type]  # its rows follow from the cells, without the page
    rows = tuple(tuple(share(cell) for cell in row.cells) for row in table.rows)
    return DetectedTable(union(cell for row in rows for cell in row if cell is not None), rows)

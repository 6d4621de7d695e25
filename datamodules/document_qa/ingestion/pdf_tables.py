"""Ruled tables of PDFs: pdfplumber's search for cells between lines, with the lines and the letters that PDFium finds.

pdfplumber's own reader of pages takes most of a second for a page and loses spaces in narrow letters.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from datamodules.document_qa.ingestion.boxes import Box, contains_centre, union
from datamodules.document_qa.ingestion.pdf_objects import Drawn, PageFrame
from datamodules.document_qa.ingestion.pdf_text import Character, joined, split_lines

_TOLERANCE = 3.0  # points: lines so close are one, corners so close touch; pdfplumber's own default
_SLANT = 0.5  # points: a line that is wider and higher than that is neither across nor down
_CORNERS = 4_000  # of a drawing, not of a table: the search takes their square


class FoundTable(NamedTuple):
    """Cells between lines."""

    box: Box
    rows: tuple[tuple[Box | None, ...], ...]  # None: where a cell beside or above spans


def find_tables(drawn: Sequence[Drawn], frame: PageFrame, note: Callable[[str], None]) -> list[FoundTable]:
    """Grids of at least two rows and two columns.

    Args:
        drawn: what is on the page.
        frame: its size.
        note: is told of a page with too many lines to be searched.
    """
    lines = list(_lines(drawn, frame))
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
        note("it has too many lines to look for tables in")
        return []
    corners = edges_to_intersections(edges, _TOLERANCE, _TOLERANCE)
    if len(corners) > _CORNERS:
        note("it has too many lines to look for tables in")
        return []
    found = (_table(cells, frame) for cells in cells_to_tables(intersections_to_cells(corners)))
    return [table for table in found if len(table.rows) > 1 and len(table.rows[0]) > 1]


def table_text(table: FoundTable, characters: Sequence[Character]) -> str:
    """A row a line, cells between " | ", of those characters of a page that lie in the table."""
    cells = [cell for row in table.rows for cell in row if cell is not None]
    letters: dict[Box, list[Character]] = {cell: [] for cell in cells}
    last: Box | None = None
    for character in characters:
        if character.box is None:  # a space or an end of line, where the letter before it is
            if last is not None:
                letters[last].append(character)
        elif last is None or not contains_centre(last, character.box):
            last = next((cell for cell in cells if contains_centre(cell, character.box)), None)
        if last is not None and character.box is not None:
            letters[last].append(character)
    words = {cell: joined([line.text for line in split_lines(inside)]) for cell, inside in letters.items()}
    texts = {cell: text.replace(" | ", "|") for cell, text in words.items()}
    return "\n".join(" | ".join("" if cell is None else texts[cell] for cell in row) for row in table.rows)


def _lines(drawn: Sequence[Drawn], frame: PageFrame) -> Iterator[dict[str, Any]]:
    """As pdfplumber has them: in points from the page's top left."""
    for one in drawn:
        for left, top, right, bottom in one.lines:
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


def _table(cells: list[Box], frame: PageFrame) -> FoundTable:
    from pdfplumber.table import Table

    def share(cell: Box | None) -> Box | None:
        if cell is None:
            return None
        left, top, right, bottom = cell
        return left / frame.width, top / frame.height, right / frame.width, bottom / frame.height

    rows = tuple(tuple(share(cell) for cell in row.cells) for row in Table(None, cells).rows)  # type: ignore[arg-type]
    return FoundTable(union(cell for row in rows for cell in row if cell is not None), rows)

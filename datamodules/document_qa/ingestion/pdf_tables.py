"""Ruled tables of PDFs, by pdfplumber. It is slow, so it only sees pages with lines that could be a table's."""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from datamodules.document_qa.ingestion.boxes import Box, on_page
from datamodules.document_qa.ingestion.pdf_objects import Drawn

_THIN = 3.0  # points: what is thinner is a line
_LONG = 8.0  # points: what is shorter rules nothing
_LINES = 3  # along each axis: two rows, two columns
_CROWDED = 5_000  # paths of a page that is a drawing; the search would take minutes

logging.getLogger("pdfminer").setLevel(logging.ERROR)  # of fonts and colours that it does not know


def may_have_tables(drawn: Sequence[Drawn]) -> bool:
    """Whether three lines down and three across could be there."""
    paths = [one for one in drawn if not one.is_image]
    if len(paths) > _CROWDED:
        return False
    across, down = set(), set()  # where lines begin, to a thousandth of the page
    for one in paths:
        (width, height), (left, top, right, bottom) = one.points, one.box
        if width >= _LONG and height >= _LONG and one.segments > 2 * _LINES:
            return True  # a grid, or anything else, in one path
        if width >= _LONG:
            across |= {round(top, 3)} if height < _THIN else {round(top, 3), round(bottom, 3)}
        if height >= _LONG:
            down |= {round(left, 3)} if width < _THIN else {round(left, 3), round(right, 3)}
    return len(across) >= _LINES and len(down) >= _LINES


class TableFinder:
    """Finds the tables of one PDF, which is opened when the first page is asked for. To be used in a with-block.

    Args:
        path: the PDF.
        note: is told of a page that could not be searched.
    """

    def __init__(self, path: Path, note: Callable[[str], None]) -> None:
        self._path, self._note = path, note
        self._pdf: Any = None

    def __enter__(self) -> "TableFinder":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._pdf is not None:
            self._pdf.close()

    def find(self, number: int) -> list[tuple[Box, str]]:
        """Place and text of each table of a page: a row a line, cells between " | ". Its words are text if it fails."""
        try:
            if self._pdf is None:
                import pdfplumber

                self._pdf = pdfplumber.open(self._path)
            page = self._pdf.pages[number - 1]
            try:
                return [one for table in page.find_tables() if (one := _table(page, table)) is not None]
            finally:
                page.close()
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001  (pdfminer raises almost anything; PDFium could read the page)
            self._note(f"page {number}: tables cannot be looked for ({type(error).__name__}: {error})")
            return []


def _table(page: Any, table: Any) -> tuple[Box, str] | None:
    rows = [[" ".join((cell or "").split()) for cell in row] for row in table.extract()]
    if len(rows) < 2 or max(map(len, rows)) < 2 or sum(bool(cell) for row in rows for cell in row) < 2:
        return None  # a frame around something else
    (x0, y0, x1, y1), (left, top, right, bottom) = page.cropbox, table.bbox
    wide, high = x1 - x0, y1 - y0
    box = on_page(((left - x0) / wide, (top - y0) / high, (right - x0) / wide, (bottom - y0) / high))
    return box, "\n".join(" | ".join(row) for row in rows)

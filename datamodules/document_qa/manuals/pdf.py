"""Manuals as PDFs. Drawings are embedded as pictures alone: their numbers are not among the PDF's texts."""

from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from datamodules.document_qa.manuals.layout import CELL_HEIGHT, CELL_WIDTH, HEIGHT, LINE, TEXT_SIZE, WIDTH, Placed
from datamodules.document_qa.manuals.manual import Manual

if TYPE_CHECKING:
    from PIL.Image import Image

_FONT = "Helvetica"  # every reader of PDFs has it
_SCALE = 2.0  # pixels a point of a page's picture


def write_pdf(manual: Manual, path: Path) -> None:
    """The same bytes whenever it is written."""
    path.write_bytes(pdf_bytes(manual))


def pdf_bytes(manual: Manual) -> bytes:
    """The whole manual."""
    from reportlab.pdfgen.canvas import Canvas

    written = BytesIO()
    canvas = Canvas(written, pagesize=(WIDTH, HEIGHT), invariant=1, pageCompression=0)
    canvas.setTitle(manual.name)
    for number, (_, _, placed) in enumerate(manual.layout, 1):
        for one in placed:
            _draw(canvas, one, manual, number)
        canvas.showPage()
    canvas.save()
    return written.getvalue()


def render(manual: Manual, page: int) -> "Image":
    """A page as it looks, in RGB."""
    import pypdfium2

    document = pypdfium2.PdfDocument(pdf_bytes(manual))
    try:
        return document[page - 1].render(scale=_SCALE).to_pil().convert("RGB")
    finally:
        document.close()


def _draw(canvas: Any, one: Placed, manual: Manual, page: int) -> None:
    """Points count from the bottom of a PDF's page."""
    if one.kind == "figure":
        from reportlab.lib.utils import ImageReader

        picture = ImageReader(manual.drawing(page))
        canvas.drawImage(picture, one.left, HEIGHT - one.bottom, one.right - one.left, one.bottom - one.top)
        return
    canvas.setFont(_FONT, one.size)
    if one.kind == "text":
        for place, (line,) in enumerate(one.lines):
            canvas.drawString(one.left, HEIGHT - one.top - place * LINE * one.size / TEXT_SIZE - one.size, line)
        return
    lefts = [one.left + place * CELL_WIDTH for place in range(len(one.lines[0]) + 1)]
    tops = [HEIGHT - one.top - place * CELL_HEIGHT for place in range(len(one.lines) + 1)]
    canvas.grid(lefts, tops)
    for top, row in zip(tops, one.lines, strict=False):
        for left, cell in zip(lefts, row, strict=False):
            canvas.drawString(left + 4, top - CELL_HEIGHT + 6, cell)

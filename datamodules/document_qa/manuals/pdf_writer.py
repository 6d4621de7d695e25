"""Writes manuals as PDFs. Drawings are embedded as images only, so their numbers are not part of the text layer."""

from collections.abc import Callable, Sequence
from io import BytesIO
from typing import TYPE_CHECKING, Any

from datamodules.document_qa.manuals.layout import CELL_HEIGHT, CELL_WIDTH, HEIGHT, LINE, TEXT_SIZE, WIDTH, LayoutBox

if TYPE_CHECKING:
    from PIL.Image import Image

_FONT = "Helvetica"  # one of the standard fonts, which every PDF reader has
_SCALE = 2.0  # pixels per point of a rendered page


def pdf_bytes(title: str, pages: Sequence[Sequence[LayoutBox]], drawing: "Callable[[int], Image]") -> bytes:
    """Write a PDF. The same arguments give the same bytes.

    Args:
        title: title of the document.
        pages: the elements of each page.
        drawing: returns the drawing of a page, by its number from 1.
    """
    from reportlab.pdfgen.canvas import Canvas

    buffer = BytesIO()
    # `invariant` fixes the date and the id of the file, which would otherwise differ on each call.
    canvas = Canvas(buffer, pagesize=(WIDTH, HEIGHT), invariant=1, pageCompression=0)
    canvas.setTitle(title)
    for number, elements in enumerate(pages, 1):
        for element in elements:
            _draw(canvas, element, number, drawing)
        canvas.showPage()
    canvas.save()
    return buffer.getvalue()


def render_page(pdf: bytes, page: int) -> "Image":
    """Render a page of a PDF, in RGB; pages are numbered from 1."""
    import pypdfium2

    document = pypdfium2.PdfDocument(pdf)
    try:
        return document[page - 1].render(scale=_SCALE).to_pil().convert("RGB")
    finally:
        document.close()


def _draw(canvas: Any, element: LayoutBox, page: int, drawing: "Callable[[int], Image]") -> None:
    # A PDF measures heights from the bottom of the page, the layout from its top.
    if element.kind == "figure":
        from reportlab.lib.utils import ImageReader

        width, height = element.right - element.left, element.bottom - element.top
        canvas.drawImage(ImageReader(drawing(page)), element.left, HEIGHT - element.bottom, width, height)
        return
    canvas.setFont(_FONT, element.size)
    if element.kind == "text":
        for index, (line,) in enumerate(element.lines):
            y = HEIGHT - element.top - index * LINE * element.size / TEXT_SIZE - element.size
            canvas.drawString(element.left, y, line)
        return
    lefts = [element.left + column * CELL_WIDTH for column in range(len(element.lines[0]) + 1)]
    tops = [HEIGHT - element.top - index * CELL_HEIGHT for index in range(len(element.lines) + 1)]
    canvas.grid(lefts, tops)
    for top, row in zip(tops, element.lines, strict=False):
        for left, cell in zip(lefts, row, strict=False):
            canvas.drawString(left + 4, top - CELL_HEIGHT + 6, cell)

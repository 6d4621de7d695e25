"""PDFs, by PDFium (pypdfium2; BSD) and, for ruled tables, pdfplumber (MIT)."""

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from datamodules.document_qa.document import Chunk
from datamodules.document_qa.ingestion.boxes import WHOLE_PAGE, Box, contains_centre, in_reading_order
from datamodules.document_qa.ingestion.broken import BrokenDocument
from datamodules.document_qa.ingestion.figures import figure_boxes
from datamodules.document_qa.ingestion.page_writer import PageWriter
from datamodules.document_qa.ingestion.pdf_objects import PageFrame, drawn_objects
from datamodules.document_qa.ingestion.pdf_tables import TableFinder, may_have_tables
from datamodules.document_qa.ingestion.pdf_text import text_blocks
from datamodules.document_qa.ingestion.settings import IngestionSettings

if TYPE_CHECKING:
    from PIL.Image import Image

_LONGEST_EDGE = 14_400  # points, 200 inches: the most that PDF 1.7 lets a page have
_POINTS = 72  # an inch


def read_pdf(path: Path, writer: PageWriter, settings: IngestionSettings) -> None:
    """Hands over all pages.

    Raises:
        BrokenDocument: it is damaged, encrypted or too large.
    """
    from pypdfium2 import PdfDocument, PdfiumError

    with ExitStack() as stack:
        try:
            pdf = stack.enter_context(PdfDocument(path))
        except PdfiumError as error:
            raise BrokenDocument(_reason(error)) from error
        if len(pdf) > settings.max_pages:
            raise BrokenDocument(
                f"it has {len(pdf):,} pages, ingestion.max_pages allows {settings.max_pages:,}"
            )
        pdf.init_forms()  # so that what forms are filled in with is in the picture
        tables = stack.enter_context(TableFinder(path, writer.note)) if settings.tables else None
        for number in range(1, len(pdf) + 1):
            try:
                page = pdf[number - 1]
                chunks = _chunks(page, number, tables)
                writer.add(_rendered(page, number, settings), chunks)
            except PdfiumError as error:
                raise BrokenDocument(f"page {number} is damaged ({error})") from error
            page.close()


def _chunks(page: Any, number: int, tables: TableFinder | None) -> list[Chunk]:
    """Of a page, in reading order."""
    frame, drawn = PageFrame(page), drawn_objects(page)
    found = tables.find(number) if tables is not None and may_have_tables(drawn) else []
    table_boxes = [box for box, _ in found]
    texts = text_blocks(page, frame, table_boxes)
    if not texts and not found:
        # No text layer: a scan. It can only be looked at, whole.
        return [Chunk(number, "figure", WHOLE_PAGE, "")] if drawn else []
    drawn = [one for one in drawn if not any(contains_centre(box, one.box) for box in table_boxes)]
    chunks = [
        *(Chunk(number, "table", box, text) for box, text in found),
        *(Chunk(number, "text", box, text) for box, text in texts),
        *(Chunk(number, "figure", box, "") for box in figure_boxes(drawn)),
    ]
    return [chunks[place] for place in in_reading_order([chunk.box for chunk in chunks])]


def _rendered(page: Any, number: int, settings: IngestionSettings) -> "Image":
    width, height = page.get_size()
    if not (0 < width <= _LONGEST_EDGE and 0 < height <= _LONGEST_EDGE):
        raise BrokenDocument(
            f"page {number} is {width:,.0f} x {height:,.0f} points large, a page's edges have at most {_LONGEST_EDGE:,}"
        )
    scale = settings.dpi / _POINTS
    most = settings.max_page_pixels
    if (width * scale + 1) * (height * scale + 1) > most:
        # Of the edges PDFium rounds up; a narrow page has at least a pixel.
        scale = min(scale, (most / (width * height)) ** 0.5, most / max(width, height)) * 0.99
    picture: Image = page.render(scale=scale, rev_byteorder=True).to_pil().convert("RGB")
    return picture


def _reason(error: Exception) -> str:
    import pypdfium2.raw as pdfium

    code = getattr(error, "err_code", None)
    if code == pdfium.FPDF_ERR_PASSWORD:
        return "it is encrypted and opens with a password only; save it without one"
    if code == pdfium.FPDF_ERR_SECURITY:
        return "it is encrypted in a way that PDFium does not know; save it without a password"
    if code == pdfium.FPDF_ERR_FORMAT:
        return "it is no PDF, or damaged"
    return f"PDFium cannot open it ({error})"

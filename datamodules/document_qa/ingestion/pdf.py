"""PDFs, by PDFium (pypdfium2; BSD) and, for ruled tables, pdfplumber (MIT)."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from datamodules.document_qa.document import Chunk
from datamodules.document_qa.ingestion.boxes import WHOLE_PAGE, contains_centre, grown, in_reading_order, on_page
from datamodules.document_qa.ingestion.broken import BrokenDocument
from datamodules.document_qa.ingestion.figures import figure_boxes
from datamodules.document_qa.ingestion.page_writer import PageWriter
from datamodules.document_qa.ingestion.pdf_objects import PageFrame, drawn_objects
from datamodules.document_qa.ingestion.pdf_tables import find_tables, table_text
from datamodules.document_qa.ingestion.pdf_text import page_characters, text_blocks
from datamodules.document_qa.ingestion.settings import IngestionSettings

if TYPE_CHECKING:
    from PIL.Image import Image

_LONGEST_EDGE = 14_400  # points, 200 inches: the most that PDF 1.7 lets a page have
_POINTS = 72  # an inch
_BESIDE = 0.005  # of the page's edges: the lines of a table lie within that


def read_pdf(path: Path, writer: PageWriter, settings: IngestionSettings) -> None:
    """Hands over all pages.

    Raises:
        BrokenDocument: it is damaged, encrypted or too large.
    """
    from pypdfium2 import PdfDocument, PdfiumError

    try:
        pdf = PdfDocument(path)
    except PdfiumError as error:
        raise BrokenDocument(_reason(error)) from error
    with pdf:
        if len(pdf) > settings.max_pages:
            raise BrokenDocument(f"it has {len(pdf):,} pages, ingestion.max_pages allows {settings.max_pages:,}")
        pdf.init_forms()  # so that what forms are filled in with is in the picture
        for number in range(1, len(pdf) + 1):
            try:
                page = pdf[number - 1]
                _check_size(page, number)
                chunks = _chunks(page, number, settings, partial(_noted, writer, number))
                writer.add(_rendered(page, settings), chunks)
            except PdfiumError as error:
                raise BrokenDocument(f"page {number} is damaged ({error})") from error
            page.close()


def _chunks(page: Any, number: int, settings: IngestionSettings, note: Callable[[str], None]) -> list[Chunk]:
    """Of a page, in reading order."""
    frame = PageFrame(page)
    drawn, characters = drawn_objects(page, frame), page_characters(page, frame)
    tables = [
        (table.box, text)
        for table in (find_tables(drawn, frame, note) if settings.tables else ())
        if (text := table_text(table, characters)).strip("| \n")
    ]
    texts = text_blocks(characters, [box for box, _ in tables])
    if not texts and not tables:
        # No text layer: a scan. It can only be looked at, whole.
        return [Chunk(number, "figure", WHOLE_PAGE, "")] if drawn else []
    lines_of_tables = [grown(box, _BESIDE) for box, _ in tables]
    drawn = [one for one in drawn if not any(contains_centre(box, one.box) for box in lines_of_tables)]
    chunks = [
        *(Chunk(number, "table", on_page(box), text) for box, text in tables),
        *(Chunk(number, "text", box, text) for box, text in texts),
        *(Chunk(number, "figure", box, "") for box in figure_boxes(drawn, [box for box, _ in texts])),
    ]
    return [chunks[place] for place in in_reading_order([chunk.box for chunk in chunks])]


def _noted(writer: PageWriter, number: int, text: str) -> None:
    writer.note(f"page {number}: {text}")


def _check_size(page: Any, number: int) -> None:
    width, height = page.get_size()
    if not (0 < width <= _LONGEST_EDGE and 0 < height <= _LONGEST_EDGE):
        raise BrokenDocument(
            f"page {number} is {width:,.0f} x {height:,.0f} points large, a page's edges have at most {_LONGEST_EDGE:,}"
        )


def _rendered(page: Any, settings: IngestionSettings) -> "Image":
    width, height = page.get_size()
    scale = settings.dpi / _POINTS
    # PDFium rounds both edges up: the largest scale of (width * scale + 1) * (height * scale + 1) <= most.
    both, most = width + height, settings.max_page_pixels
    largest = ((both**2 + 4 * width * height * (most - 1)) ** 0.5 - both) / (2 * width * height)
    scale = min(scale, largest)
    picture: Image = page.render(scale=scale, rev_byteorder=True).to_pil()
    return picture if picture.mode == "RGB" else picture.convert("RGB")


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

"""Reads PDFs with PDFium (pypdfium2; BSD) and, for ruled tables, pdfplumber (MIT)."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any

from datamodules.document_qa.ingestion.page_writer import PageWriter
from datamodules.document_qa.ingestion.readers.bounding_boxes import (
    WHOLE_PAGE,
    clip_to_page,
    contains_center,
    expand,
    reading_order,
)
from datamodules.document_qa.ingestion.readers.pdf_figures import figure_boxes
from datamodules.document_qa.ingestion.readers.pdf_objects import PageFrame, page_objects
from datamodules.document_qa.ingestion.readers.pdf_tables import find_tables, table_text
from datamodules.document_qa.ingestion.readers.pdf_text import page_characters, text_blocks
from datamodules.document_qa.ingestion.settings import IngestionSettings
from datamodules.document_qa.types.document import Chunk
from engine.data.errors import UnreadableDocumentError

if TYPE_CHECKING:
    from PIL.Image import Image

_LONGEST_EDGE = 14_400  # points (200 inches): the limit of PDF 1.7
_POINTS = 72  # per inch
_BESIDE = 0.005  # margin around a table within which its ruling lines are, as a fraction of the page


def read_pdf(path: Path, writer: PageWriter, settings: IngestionSettings) -> None:
    """Convert a PDF to pages.

    Raises:
        UnreadableDocumentError: the PDF is corrupt, encrypted or too large, or states too few pages or none.
    """
    from pypdfium2 import PdfDocument, PdfiumError

    try:
        pdf = PdfDocument(path)
    except PdfiumError as error:
        raise UnreadableDocumentError(_reason(path, error)) from error
    with pdf:
        if len(pdf) > settings.max_pages:
            raise UnreadableDocumentError(
                f"found {len(pdf):,} pages, ingestion.max_pages allows {settings.max_pages:,}"
            )
        if _states_too_few_pages(path):
            raise UnreadableDocumentError(
                f"a /Count of its page tree is too low: pages beyond the {len(pdf):,} that it states would be missing; "
                "repair it, for example by printing it to a new PDF"
            )
        pdf.init_forms()  # renders the contents of form fields
        for number in range(1, len(pdf) + 1):
            try:
                page = pdf[number - 1]
                _check_page_size(page, number)
                chunks = _chunks(page, number, settings, partial(_noted, writer, number))
                writer.add(_render(page, settings), chunks)
            except PdfiumError as error:
                raise UnreadableDocumentError(f"page {number} is corrupt ({error})") from error
            page.close()


def _chunks(page: Any, number: int, settings: IngestionSettings, note: Callable[[str], None]) -> list[Chunk]:
    """Return the chunks of a page, in reading order."""
    frame = PageFrame(page)
    drawn, characters = page_objects(page, frame), page_characters(page, frame)
    tables = [
        (table.box, text)
        for table in (find_tables(drawn, frame, note) if settings.tables else ())
        if (text := table_text(table, characters)).strip("| \n")
    ]
    texts = text_blocks(characters, [box for box, _ in tables])
    if not texts and not tables:
        # A page without a text layer is a scan, which becomes one figure.
        return [Chunk(number, "figure", WHOLE_PAGE, "")] if drawn else []
    ruling_boxes = [expand(box, _BESIDE) for box, _ in tables]
    drawn = [part for part in drawn if not any(contains_center(box, part.box) for box in ruling_boxes)]
    chunks = [
        *(Chunk(number, "table", clip_to_page(box), text) for box, text in tables),
        *(Chunk(number, "text", box, text) for box, text in texts),
        *(Chunk(number, "figure", box, "") for box in figure_boxes(drawn, [box for box, _ in texts])),
    ]
    return [chunks[index] for index in reading_order([chunk.box for chunk in chunks])]


def _noted(writer: PageWriter, number: int, text: str) -> None:
    writer.note(f"page {number}: {text}")


def _check_page_size(page: Any, number: int) -> None:
    width, height = page.get_size()
    if not (0 < width <= _LONGEST_EDGE and 0 < height <= _LONGEST_EDGE):
        raise UnreadableDocumentError(
            f"page {number} is {width:,.0f} x {height:,.0f} points, the largest edge is {_LONGEST_EDGE:,} points"
        )


def _render(page: Any, settings: IngestionSettings) -> "Image":
    width, height = page.get_size()
    scale = settings.dpi / _POINTS
    # PDFium rounds both edges up: find the largest scale with (width * scale + 1) * (height * scale + 1) <= most.
    edge_sum, max_pixels = width + height, settings.max_page_pixels
    largest = ((edge_sum**2 + 4 * width * height * (max_pixels - 1)) ** 0.5 - edge_sum) / (2 * width * height)
    scale = min(scale, largest)
    # PDFium's own order of bytes is BGR.
    picture: Image = page.render(scale=scale, rev_byteorder=True).to_pil()
    return picture if picture.mode == "RGB" else picture.convert("RGB")


def _has_no_pages(path: Path) -> bool:
    """Return whether PDFium reads a file that it cannot open, because the file has no pages.

    For such a file PDFium leaves the error code of an earlier call, so a code that no readable file gives is set first.
    """
    import pypdfium2.raw as pdfium
    from pypdfium2 import PdfDocument, PdfiumError

    pdfium.FPDF_LoadDocument(b"", None)  # sets FPDF_ERR_FILE: no file has this name
    try:
        PdfDocument(path).close()
    except PdfiumError as error:
        return path.stat().st_size > 0 and getattr(error, "err_code", None) == pdfium.FPDF_ERR_FILE
    return False


def _states_too_few_pages(path: Path) -> bool:
    """Return whether pages are left in a copy of a PDF after those are deleted that its page tree states.

    PDFium reads no page beyond a /Count; where it is 0, as in the copy, PDFium counts the pages. The copy is written to
    a temporary file, as it may be as large as the PDF. A PDF that PDFium cannot copy is not checked.
    """
    from pypdfium2 import PdfDocument, PdfiumError

    try:
        with TemporaryFile() as copy:
            with PdfDocument(path) as pdf:
                for _ in range(len(pdf)):
                    del pdf[0]
                pdf.save(copy)
            copy.seek(0)
            with PdfDocument(copy) as rest:
                rest[0].close()
    except PdfiumError:  # the copy has no pages
        return False
    return True


def _reason(path: Path, error: Exception) -> str:
    import pypdfium2.raw as pdfium

    if _has_no_pages(path):
        return "it has no pages"
    code = getattr(error, "err_code", None)
    if code == pdfium.FPDF_ERR_PASSWORD:
        return "encrypted with a password; save it without a password"
    if code == pdfium.FPDF_ERR_SECURITY:
        return "encrypted in a way that PDFium does not support; save it without encryption"
    if code == pdfium.FPDF_ERR_FORMAT:
        return "not a PDF, or corrupt"
    return f"PDFium cannot open it ({error})"

"""Writes PDFs with the same bytes every time, and makes their conversion fail."""

import hashlib
import io
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from PIL import Image
from reportlab.lib.pagesizes import A4
from reportlab.lib.utils import ImageReader
from reportlab.pdfgen.canvas import Canvas
from reportlab.platypus import Paragraph, Table, TableStyle

from datamodules.document_qa.ingestion.convert import ConversionResult, convert_document
from datamodules.document_qa.ingestion.document_cache import DocumentCache
from datamodules.document_qa.ingestion.page_writer import PageWriter

WORDS = [
    "the",
    "motor",
    "of",
    "this",
    "pump",
    "turns",
    "when",
    "valve",
    "and",
    "relay",
    "are",
    "closed",
    "while",
    "pressure",
    "stays",
    "below",
    "its",
    "limit",
    "so",
    "check",
    "each",
    "fuse",
    "before",
    "you",
    "open",
    "a",
    "cover",
    "of",
    "the",
    "housing",
    "and",
    "read",
    "from",
    "gauge",
    "what",
    "voltage",
    "current",
    "or",
    "torque",
    "it",
    "shows",
]
SYLLABLES = ["ba", "ko", "ri", "tem", "sul", "dan", "fo", "vel", "mi", "gar", "nu", "pel", "tas", "wo", "lin"]


def write_pdf(path: Path, *pages: Callable[[Canvas], Any], size: tuple[float, float] = A4, **options: Any) -> Path:
    """A PDF whose pages draw themselves."""
    canvas = Canvas(str(path), pagesize=size, invariant=1, **options)
    for draw in pages:
        draw(canvas)
        canvas.showPage()
    canvas.save()
    return path


def draw_text(canvas: Canvas, text: str, top: float, left: float = 60, width: float = 470, style: Any = None) -> float:
    """A paragraph below `top`, in points from the page's top; returns where it ends."""
    from reportlab.lib.styles import ParagraphStyle

    paragraph = Paragraph(text, style or ParagraphStyle("text", fontSize=10, leading=13))
    _, height = paragraph.wrap(width, 10_000)
    paragraph.drawOn(canvas, left, canvas._pagesize[1] - top - height)
    return top + height


def draw_table(canvas: Canvas, rows: Sequence[Sequence[str]], top: float, left: float = 60) -> float:
    """A ruled table below `top`; returns where it ends."""
    table = Table([list(row) for row in rows], style=TableStyle([("GRID", (0, 0), (-1, -1), 0.6, "black")]))
    _, height = table.wrap(480, 10_000)
    table.drawOn(canvas, left, canvas._pagesize[1] - top - height)
    return top + height


def draw_image(canvas: Canvas, color: str, box: tuple[float, float, float, float]) -> None:
    """An image of one color; left, top, right, bottom in points from the page's top left."""
    file = io.BytesIO()
    Image.new("RGB", (32, 32), color).save(file, "PNG")
    file.seek(0)
    left, top, right, bottom = box
    canvas.drawImage(ImageReader(file), left, canvas._pagesize[1] - bottom, right - left, bottom - top)


def sentence(*coordinates: int, words: int = 12) -> str:
    """Return the same sentence for the same coordinates; few other sentences share its every third word."""

    def drawn(bound: int, *key: int) -> int:
        # Not by engine.determinism.stateless_rng, which imports torch: these are written where nothing else needs it.
        return int.from_bytes(hashlib.sha256(repr((*coordinates, *key)).encode()).digest()[:8], "big") % bound

    output = [WORDS[drawn(len(WORDS), index)] for index in range(words)]
    for index in range(0, words, 3):
        output[index] = "".join(SYLLABLES[drawn(len(SYLLABLES), index, letter)] for letter in range(3))
    return " ".join(output).capitalize() + "."


def manual(path: Path, pages: int, seed: int = 0) -> Path:
    """Chapters of text, every second page with a ruled table, every third with a picture."""

    def page(number: int) -> Callable[[Canvas], None]:
        def draw(canvas: Canvas) -> None:
            top = draw_text(canvas, f"Chapter {number} of manual {seed}", 50)
            for paragraph in range(4):
                text = " ".join(sentence(seed, number, paragraph, index) for index in range(4))
                top = draw_text(canvas, text, top + 14)
            if number % 2 == 0:
                parts = (sentence(seed, number, row, 90, words=2) for row in range(1, 6))
                cells = [[part, f"{index * number} kg"] for index, part in enumerate(parts, 1)]
                top = draw_table(canvas, [["Part", "Mass"], *cells], top + 20)
            if number % 3 == 0:
                draw_image(canvas, ("red", "green", "blue")[seed % 3], (100, top + 20, 300, top + 150))

        return draw

    return write_pdf(path, *(page(number) for number in range(1, pages + 1)))


def killed(path: Path, cache: DocumentCache) -> ConversionResult:
    """Converts, but dies of what is called "deadly", as of a fault in a library."""
    if "deadly" in path.name:
        os.kill(os.getpid(), signal.SIGKILL)
    return convert_document(path, cache)


def failing(path: Path, cache: DocumentCache) -> ConversionResult:
    """Converts, but fails at what is called "deadly", as a library does at strange files."""
    if "deadly" in path.name:
        raise KeyError("strange")
    return convert_document(path, cache)


def interrupted(path: Path, cache: DocumentCache) -> ConversionResult:
    """Converts, but in the middle of what is called "deadly" kills itself and the process that has started it."""
    if "deadly" in path.name:

        def die(*_: Any) -> None:
            os.kill(os.getppid(), signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)

        PageWriter.__exit__ = die  # type: ignore[method-assign]
    return convert_document(path, cache)

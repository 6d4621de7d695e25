"""Measures whether pages of a folder of PDFs are found after they were scanned, by sentences with dropped words."""

import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.table import Table

from benchmarks.cpu_time import cpu_seconds
from benchmarks.document_qa.manuals import AllPages, pseudo_queries
from benchmarks.document_qa.scan_effect import DPI, scan
from datamodules.document_qa.ingestion.ingest import ingest
from datamodules.document_qa.ingestion.ocr.recognizer import Ocr
from datamodules.document_qa.ingestion.settings import IngestionSettings
from datamodules.document_qa.ingestion.sources import find_documents
from datamodules.document_qa.retrieval.retrievers import build_retriever
from datamodules.document_qa.retrieval.settings import RetrieverSettings
from datamodules.document_qa.types.document import Document, Page
from datamodules.document_qa.types.question import Question
from engine.determinism.stateless_rng import hash_permutation

_SEED = 0
_POINTS = 72  # per inch
_CUTS = (1, 5)  # of recall


class _Ingestion(NamedTuple):
    """All pages of the documents in their order, and what their ingestion took."""

    pages: tuple[Page, ...]
    seconds: float
    cpu_seconds: float


def measure(folder: Path, pages: int, ocr: Ocr) -> dict[str, Any]:
    """Measure up to `pages` pages, drawn by a seed from all PDFs of a folder.

    Returns:
        Counts, and for each source of text (`original`, `none` and the name of the OCR program) its recall at 1 and 5
        and the seconds of its ingestion.

    Raises:
        ValueError: the folder has no PDF or a corrupt one, or no page has a sentence for a query.
    """
    paths = [path for path in find_documents(folder) if path.suffix.lower() == ".pdf"]
    if not paths:
        raise ValueError(f"{folder}: contains no PDF")
    with tempfile.TemporaryDirectory() as root:
        names = write_scans(paths, pages, Path(root))
        found = {"original": _ingest([Path(root) / "original" / f"{name}.pdf" for name in names], "none")}
        original = found["original"].pages
        queries = list(pseudo_queries(original))
        if not queries:
            raise ValueError(f"{folder}: none of {len(original)} pages has a sentence for a query")
        scans = [Path(root) / "scans" / name for name in names]
        found.update({kind: _ingest(scans, kind) for kind in ("none", ocr)})
    return {
        "documents": len(names),
        "pages": len(original),
        "queries": len(queries),
        "ocr": ocr,
        "recall": {kind: recall(ingestion.pages, queries) for kind, ingestion in found.items()},
        "seconds": {kind: ingestion.seconds for kind, ingestion in found.items()},
        "cpu_seconds": {kind: ingestion.cpu_seconds for kind, ingestion in found.items()},
    }


def table(found: Mapping[str, Any]) -> Table:
    """Return a table of the measurements, a row for each source of text."""
    title = f"{found['pages']} pages of {found['documents']} PDFs as scans, {found['queries']} queries"
    table = Table(title=title, title_justify="left")
    for heading in ("text of the pages", *(f"R@{cut}" for cut in _CUTS), "ingestion, s", "CPU s"):
        table.add_column(heading, justify="left" if heading.startswith("text") else "right")
    rows = {"none": "scans, without OCR", found["ocr"]: f"scans, {found['ocr']}", "original": "the PDFs' own text"}
    for kind, name in rows.items():
        shares = [f"{share:.3f}" for share in found["recall"][kind].values()]
        table.add_row(name, *shares, f"{found['seconds'][kind]:.0f}", f"{found['cpu_seconds'][kind]:.0f}")
    table.add_row("a page at random", *(f"{min(1.0, cut / found['pages']):.3f}" for cut in _CUTS), "", "")
    return table


def write_scans(paths: Sequence[Path], pages: int, folder: Path) -> list[str]:
    """Write the drawn pages of PDFs twice: as `original/NAME.pdf`, and as PNG files in the folder `scans/NAME`.

    A PDF of scans would be rendered once more, which blurs them, and Pillow would compress them as JPEG.

    Args:
        paths: the PDFs.
        pages: largest number of pages.
        folder: gets the two folders, with equal names and numbers of pages.

    Returns:
        The names, without those of PDFs of which no page is drawn.

    Raises:
        ValueError: a PDF is corrupt or encrypted.
    """
    from pypdfium2 import PdfDocument

    for name in ("original", "scans"):
        (folder / name).mkdir()
    names: list[str] = []
    written = 0
    for path, drawn in zip(paths, _draw([_length(path) for path in paths], pages), strict=True):
        if not drawn:
            continue
        names.append(f"{len(names):03d}-{path.stem}")  # PDFs of several folders can have the same name
        scans = folder / "scans" / names[-1]
        scans.mkdir()
        with PdfDocument(path) as pdf, PdfDocument.new() as original:
            original.import_pages(pdf, drawn)
            original.save(folder / "original" / f"{names[-1]}.pdf")
            for number, index in enumerate(drawn, 1):
                page = pdf[index].render(scale=DPI / _POINTS, rev_byteorder=True).to_pil().convert("RGB")
                scan(page, written).save(scans / f"{number}.png")
                written += 1
    return names


def recall(pages: tuple[Page, ...], queries: Sequence[tuple[int, str]]) -> dict[int, float]:
    """Return {cut: share of the queries whose page is among so many first pages} for a search of all pages.

    Pages without a word of a query follow in their order, as in the retriever of `fit`, `test` and `predict`.

    Args:
        pages: pages of all documents.
        queries: (index of the page that must be found, text) of each query.
    """
    retriever = build_retriever(RetrieverSettings(kind="bm25", pages=None))
    document: Document = AllPages(pages)  # type: ignore[assignment]  # bm25 reads its pages alone
    ranks = []
    for index, text in queries:
        ranked = retriever.rank(document, Question(str(index), text, document.name))
        ranks.append(1 + ranked.index(index + 1))
    return {cut: float(np.mean([rank <= cut for rank in ranks])) for cut in _CUTS}


def _length(path: Path) -> int:
    from pypdfium2 import PdfDocument, PdfiumError

    try:
        with PdfDocument(path) as pdf:
            return len(pdf)
    except PdfiumError as error:
        raise ValueError(f"{path}: cannot be read as a PDF ({error}); remove it from the folder") from error


def _draw(lengths: Sequence[int], pages: int) -> list[list[int]]:
    """Return the indices of the drawn pages of each PDF, ascending; `lengths` are the numbers of their pages."""
    chosen = set(hash_permutation(sum(lengths), _SEED)[:pages].tolist())
    starts = np.cumsum([0, *lengths[:-1]]).tolist()
    return [
        [index for index in range(length) if start + index in chosen]
        for start, length in zip(starts, lengths, strict=True)
    ]


def _ingest(paths: Sequence[Path], ocr: Ocr) -> _Ingestion:
    with tempfile.TemporaryDirectory() as cache:
        began, cpu = time.perf_counter(), cpu_seconds()
        found = ingest(paths, Path(cache), IngestionSettings(dpi=DPI, ocr=ocr, workers=1))
        seconds, cpu = time.perf_counter() - began, cpu_seconds() - cpu
        # Read before the cache is removed.
        pages = tuple(page for path in paths for page in found.documents[path.name].pages)
    return _Ingestion(pages, seconds, cpu)

"""Measures the ingestion of real manuals, and the retrieval of their pages by sentences with dropped words."""

import re
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.table import Table

from datamodules.document_qa.ingestion.ingest import ingest
from datamodules.document_qa.ingestion.settings import IngestionSettings
from datamodules.document_qa.ingestion.sources import find_documents
from datamodules.document_qa.retrieval.bm25 import BM25Retriever
from datamodules.document_qa.types.document import KINDS, Page
from engine.determinism.stateless_rng import hash_permutation, hash_uniform

_SEED = 0
_DROPPED = 0.4  # share of the words of a query that is dropped
_WORDS = range(10, 41)  # lengths of the sentences that become queries
_QUERIES = 300


class AllPages(NamedTuple):
    """The pages of several documents as a single document."""

    pages: tuple[Page, ...]
    name: str = "all manuals"


def measure(folder: Path, settings: IngestionSettings | None = None) -> dict[str, Any]:
    """Measure all PDFs of a folder: counts, pages per second, recall of pages.

    Raises:
        ValueError: a document is corrupt.
    """
    paths = [path for path in find_documents(folder) if path.suffix.lower() == ".pdf"]
    with tempfile.TemporaryDirectory() as cache:
        start = time.perf_counter()
        found = ingest(paths, Path(cache), settings or IngestionSettings())
        seconds = time.perf_counter() - start
        pages = tuple(page for document in found.documents.values() for page in document.pages)
    chunks = [chunk.kind for page in pages for chunk in page.chunks]
    ranks, query_seconds = _ranks(pages)
    return {
        "documents": len(found.documents),
        "pages": len(pages),
        "rate": len(pages) / seconds,
        **{kind: chunks.count(kind) for kind in KINDS},
        "queries": len(ranks),
        "recall@1": float(np.mean([rank == 1 for rank in ranks])),
        "recall@4": float(np.mean([rank <= 4 for rank in ranks])),
        "milliseconds": 1000 * query_seconds / len(ranks),
    }


def table(found: dict[str, Any]) -> Table:
    """Return a table of the measurements."""
    table = Table(title="real manuals", title_justify="left")
    for heading in ("", "found"):
        table.add_column(heading, justify="right" if heading else "left")
    chunks = ", ".join(f"{found[kind]:,} {kind}" for kind in KINDS)
    rows = (
        ("PDFs, pages", f"{found['documents']}, {found['pages']:,}"),
        ("pages ingested per second", f"{found['rate']:.1f}"),
        ("chunks", chunks),
        (f"bm25 R@1, R@4 of {found['queries']} pseudo-queries", f"{found['recall@1']:.3f}, {found['recall@4']:.3f}"),
        ("a query, milliseconds", f"{found['milliseconds']:.2f}"),
    )
    for row in rows:
        table.add_row(*row)
    return table


def pseudo_queries(pages: Sequence[Page]) -> Iterator[tuple[int, str]]:
    """Return (index of a page, a sentence of it without 40 % of its words), for at most 300 pages chosen by a seed."""
    queries = 0
    for index in hash_permutation(len(pages), _SEED).tolist():
        sentences = [
            words
            for chunk in pages[index].chunks
            if chunk.kind == "text"
            for sentence in re.split(r"(?<=[.!?])\s+", chunk.text)
            if len(words := sentence.split()) in _WORDS
        ]
        if not sentences:
            continue
        words = sentences[int(hash_permutation(len(sentences), _SEED, index)[0])]
        kept = [
            word
            for word, drawn in zip(words, hash_uniform(_SEED, index, np.arange(len(words))), strict=True)
            if drawn >= _DROPPED
        ]
        if kept:
            yield index, " ".join(kept)
            queries += 1
        if queries == _QUERIES:
            return


def _ranks(pages: tuple[Page, ...]) -> tuple[list[int], float]:
    """Return the rank of each query's page among all pages, and the seconds without building the index."""
    document, bm25, ranks = AllPages(pages), BM25Retriever(), []
    # Builds the index, which is not part of a query.
    bm25.scores(document, "")  # type: ignore[arg-type]
    start = time.perf_counter()
    for index, text in pseudo_queries(pages):
        scores = bm25.scores(document, text)  # type: ignore[arg-type]
        # A tie counts for the page.
        ranks.append(1 + int((scores > scores[index]).sum()))
    return ranks, time.perf_counter() - start

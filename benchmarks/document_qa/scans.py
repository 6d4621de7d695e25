"""Measures whether pages of scans are found, without OCR and with it.

Pages are rendered, turned by 1 to 2 degrees and blurred, so that they have no text. bm25 ranks them.
`--manuals N`: questions about the embedded manuals; bm25 searches the 12 pages of the question's own manual.
`--folder DIR`: sentences of a user's PDFs without 40 % of their words; bm25 searches all drawn pages of all PDFs. The
row of the PDFs' own text is the upper bound.
"""

import argparse
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from benchmarks.command_line import count
from benchmarks.document_qa import scanned_folder
from benchmarks.document_qa.scan_effect import scan
from benchmarks.environment import console, describe_environment, end_report
from datamodules.document_qa.ingestion.ingest import ingest
from datamodules.document_qa.ingestion.ocr.recognizer import Ocr
from datamodules.document_qa.ingestion.settings import IngestionSettings
from datamodules.document_qa.manuals.dataset import ManualQuestionSet
from datamodules.document_qa.manuals.pdf_writer import render_page
from datamodules.document_qa.manuals.question_sampler import QuestionSampler
from datamodules.document_qa.manuals.settings import ManualQuestionSettings, ManualSettings
from datamodules.document_qa.retrieval.bm25 import BM25Retriever
from datamodules.document_qa.types.document import Document
from datamodules.document_qa.types.question import Question
from datamodules.multimodal.synthetic_split import Split

_PER_MANUAL = 12  # questions


def share_found(
    questions: list[Question], documents: Mapping[str, Document], sources: tuple[str, ...]
) -> tuple[int, int]:
    """Return (questions whose first page by bm25 is an evidence page, questions) of some evidence sources."""
    retriever = BM25Retriever()
    asked = [question for question in questions if question.evidence_pages and question.source in sources]
    found = [retriever.rank(documents[question.document], question)[0] in question.evidence_pages for question in asked]
    return sum(found), len(asked)


def main(arguments: list[str] | None = None) -> None:
    """Parse the command line, write the scans, ingest them with and without OCR, and print the results."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.document_qa.scans",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--manuals", type=count, default=5, help="embedded manuals of 12 pages (default: 5)")
    what.add_argument("--folder", type=Path, metavar="DIR", help="PDFs with a text layer, instead of embedded manuals")
    parser.add_argument("--pages", type=count, default=200, help="largest number of pages of --folder (default: 200)")
    parser.add_argument("--ocr", default="rapidocr", choices=["rapidocr", "tesseract"])
    options = parser.parse_args(arguments)
    if options.folder is None:
        _measure_embedded(options.manuals, options.ocr)
        return
    if not options.folder.is_dir():
        parser.error(f"--folder {options.folder} is not a folder")
    out, environment = console(), describe_environment(repeats=1)
    try:
        found = scanned_folder.measure(options.folder, options.pages, options.ocr)
    except ValueError as error:
        parser.error(str(error))
    out.print(scanned_folder.table(found))
    end_report(out, environment, [found], None)


def _measure_embedded(manuals: int, ocr: Ocr) -> None:
    sampler = QuestionSampler(ManualSettings(chapters=4), ManualQuestionSettings())
    split = ManualQuestionSet(sampler, Split.VALIDATION, _PER_MANUAL * manuals, per_manual=_PER_MANUAL)
    questions = [split.questions(0, index)[0] for index in range(len(split))]
    originals = {split.document(0, index).name: split.document(0, index) for index in range(len(split))}
    with tempfile.TemporaryDirectory() as folder:
        pages = 0
        for name, manual in originals.items():
            (Path(folder) / name).mkdir()
            for number in range(1, len(manual.pages) + 1):
                pages += 1
                scan(render_page(manual.pdf(), number), pages).save(Path(folder) / name / f"{number}.png")
        programs: tuple[Ocr, ...] = ("none", ocr)
        results: dict[str, Mapping[str, Document]] = {"the PDFs' own text": originals}
        for kind in programs:
            began = time.monotonic()
            settings = IngestionSettings(ocr=kind, workers=1)
            found = ingest([Path(folder) / name for name in originals], Path(folder) / "cache", settings)
            results[f"scans, ocr {kind}"] = found.documents
            print(f"ocr {kind}: {pages} pages in {time.monotonic() - began:.0f} s")
        for name, documents in results.items():
            parts = {"all": ("text", "table", "figure"), "text": ("text",), "table": ("table",)}
            shares = {part: share_found(questions, documents, sources) for part, sources in parts.items()}
            print(
                f"{name}: " + ", ".join(f"R@1 {part} {hit}/{of} = {hit / of:.3f}" for part, (hit, of) in shares.items())
            )


if __name__ == "__main__":
    main()

"""Measures whether pages of scans are found: `python -m benchmarks.document_qa.scans --manuals 5 --ocr rapidocr`.

The pages of the embedded manuals are rendered, turned by 1 to 2 degrees and blurred, so that they have no text. Their
questions are then ranked by bm25, without OCR and with it.
"""

import argparse
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from PIL import Image, ImageFilter

from benchmarks.command_line import count
from datamodules.document_qa.ingestion.ingest import ingest
from datamodules.document_qa.ingestion.settings import IngestionSettings
from datamodules.document_qa.manuals.dataset import ManualQuestionSet
from datamodules.document_qa.manuals.pdf_writer import render_page
from datamodules.document_qa.manuals.question_sampler import QuestionSampler
from datamodules.document_qa.manuals.settings import ManualQuestionSettings, ManualSettings
from datamodules.document_qa.retrieval.bm25 import BM25Retriever
from datamodules.document_qa.types.document import Document
from datamodules.document_qa.types.question import Question
from datamodules.multimodal.synthetic_split import Split
from engine.determinism.stateless_rng import hash_uniform

_PER_MANUAL = 12  # questions
_BLUR = 0.8  # standard deviation in pixels


def scan(page: Image.Image, number: int) -> Image.Image:
    """Return a page as a scanner returns it: turned by 1 to 2 degrees in either direction, and blurred."""
    draw = float(hash_uniform(0x5CA4, number))
    # One draw gives sign and size: below 0.5 to the left, and the farther from 0.5 the more.
    degrees = (1 + abs(2 * draw - 1)) * (1 if draw < 0.5 else -1)
    turned = page.rotate(degrees, fillcolor="white", resample=Image.Resampling.BICUBIC)
    return turned.filter(ImageFilter.GaussianBlur(_BLUR))


def share_found(
    questions: list[Question], documents: Mapping[str, Document], sources: tuple[str, ...]
) -> tuple[int, int]:
    """Return (questions whose first page by bm25 is an evidence page, questions) of some evidence sources."""
    retriever = BM25Retriever()
    asked = [question for question in questions if question.evidence_pages and question.source in sources]
    found = [retriever.rank(documents[question.document], question)[0] in question.evidence_pages for question in asked]
    return sum(found), len(asked)


def main() -> None:
    """Write the scans, ingest them with and without OCR, and print the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--manuals", type=count, default=5, help="manuals of 12 pages (default: 5)")
    parser.add_argument("--ocr", default="rapidocr", choices=["rapidocr", "tesseract"])
    options = parser.parse_args()
    sampler = QuestionSampler(ManualSettings(chapters=4), ManualQuestionSettings())
    split = ManualQuestionSet(sampler, Split.VALIDATION, _PER_MANUAL * options.manuals, per_manual=_PER_MANUAL)
    questions = [split.questions(0, index)[0] for index in range(len(split))]
    originals = {split.document(0, index).name: split.document(0, index) for index in range(len(split))}
    with tempfile.TemporaryDirectory() as folder:
        pages = 0
        for name, manual in originals.items():
            (Path(folder) / name).mkdir()
            for number in range(1, len(manual.pages) + 1):
                pages += 1
                scan(render_page(manual.pdf(), number), pages).save(Path(folder) / name / f"{number}.png")
        results: dict[str, Mapping[str, Document]] = {"the PDFs' own text": originals}
        for ocr in ("none", options.ocr):
            began = time.monotonic()
            settings = IngestionSettings(ocr=ocr, workers=1)
            found = ingest([Path(folder) / name for name in originals], Path(folder) / "cache", settings)
            results[f"scans, ocr {ocr}"] = found.documents
            print(f"ocr {ocr}: {pages} pages in {time.monotonic() - began:.0f} s")
        for name, documents in results.items():
            parts = {"all": ("text", "table", "figure"), "text": ("text",), "table": ("table",)}
            shares = {part: share_found(questions, documents, sources) for part, sources in parts.items()}
            print(
                f"{name}: " + ", ".join(f"R@1 {part} {hit}/{of} = {hit / of:.3f}" for part, (hit, of) in shares.items())
            )


if __name__ == "__main__":
    main()

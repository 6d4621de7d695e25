"""Tests that manuals written as PDFs are ingested as the chunks from which they were written."""

import re
from pathlib import Path

import numpy as np
import pytest

from datamodules.document_qa.ingestion.ingest import ingest
from datamodules.document_qa.ingestion.settings import IngestionSettings
from datamodules.document_qa.manuals.dataset import ManualQuestionSet
from datamodules.document_qa.manuals.manual import Manual
from datamodules.document_qa.manuals.manual_writer import write_manuals
from datamodules.document_qa.manuals.question_sampler import QuestionSampler
from datamodules.document_qa.manuals.settings import ManualQuestionSettings, ManualSettings
from datamodules.document_qa.questions.question_file import read_question_file
from datamodules.multimodal.synthetic_split import Split
from tests.support.outputs.jsonl import read_jsonl

pypdfium2 = pytest.importorskip("pypdfium2")
pytest.importorskip("reportlab")


@pytest.fixture(scope="module")
def manuals() -> list[Manual]:
    settings = (
        ManualSettings(),
        ManualSettings(callouts="leader", chapters=1, grid=3, parts_per_chapter=7, figure_size=200),
    )
    return [Manual(settings[key % 2], key, f"manual-{key}.pdf") for key in range(8)]


def test_a_manual_has_the_same_bytes_every_time(manuals):
    for manual in manuals[:2]:
        again = Manual(manual.settings, manual.key, manual.name)
        assert manual.pdf() == again.pdf()


def test_ingesting_the_pdf_gives_the_same_chunks(manuals, tmp_path):
    for manual in manuals:
        (tmp_path / manual.name).write_bytes(manual.pdf())
    paths = sorted(tmp_path.glob("*.pdf"))
    ingested = ingest(paths, tmp_path / "cache", IngestionSettings(workers=1)).documents
    for manual in manuals:
        pages = ingested[manual.name].pages
        assert len(pages) == len(manual.pages)
        for read, made in zip(pages, manual.pages, strict=True):
            found_here, made_here = (
                [(chunk.kind, chunk.text) for chunk in document.chunks] for document in (read, made)
            )
            assert found_here == made_here
            for first, second in zip(read.chunks, made.chunks, strict=True):
                if first.kind != "text":  # the letters of a text do not fill its box
                    assert np.allclose(first.box, second.box, atol=0.01)
                    continue
                across, down = (first.box[0] + first.box[2]) / 2, (first.box[1] + first.box[3]) / 2
                assert second.box[0] <= across <= second.box[2]
                assert second.box[1] <= down <= second.box[3]
            for first, second in zip(read.chunks, made.chunks, strict=True):
                if first.kind == "figure":
                    assert alike(ingested[manual.name].figure(first), manual.figure(second))


def alike(one, other) -> bool:
    edges = (32, 32)
    first, second = (np.asarray(picture.resize(edges), np.float64) for picture in (one, other))
    return abs(first - second).mean() < 8


def test_no_position_leaks_through_the_text_layer(manuals):
    """The text layer of a drawing's page has the heading only: the drawing is a picture."""
    for manual in manuals:
        document = pypdfium2.PdfDocument(manual.pdf())
        for number, (chapter, kind, _) in enumerate(manual.layout, 1):
            if kind != "figure":
                continue
            page = document[number - 1]
            assert page.get_textpage().get_text_range().strip() == f"Drawing of the {chapter.title}"
            kinds = sorted(item.type for item in page.get_objects())
            assert kinds == sorted([pypdfium2.raw.FPDF_PAGEOBJ_TEXT, pypdfium2.raw.FPDF_PAGEOBJ_IMAGE])
            assert pypdfium2.raw.FPDFPage_GetAnnotCount(page) == 0
        assert document.get_metadata_dict()["Title"] == manual.name
        assert document.count_attachments() == 0
        assert list(document.get_toc()) == []


def test_another_arrangement_of_the_parts_changes_pictures_alone(manuals):
    """The bytes of two manuals that differ in the drawings alone are the same but for the drawings."""
    manual = manuals[0]
    other = Manual(manual.settings, manual.key, manual.name)
    moved = [
        chapter._replace(parts=tuple(part._replace(cell=(part.cell + 1) % 4) for part in chapter.parts))
        for chapter in manual.device.chapters
    ]
    other.__dict__["device"] = manual.device._replace(chapters=tuple(moved))
    assert other.pages == manual.pages
    assert without_pictures(other.pdf()) == without_pictures(manual.pdf())
    assert other.pdf() != manual.pdf()


def without_pictures(pdf: bytes) -> list[bytes]:
    """Return all objects but images; offsets and the digest of the file follow from their lengths."""
    objects = re.split(rb"(?<=endobj)\s", pdf[: pdf.rindex(b"\nxref\n")])
    kept = [line for line in objects if b"/Subtype /Image" not in line]
    assert len(kept) < len(objects)
    # A picture's name is the digest of its bytes, which only distinguishes pictures.
    return [re.sub(rb"FormXob\.[0-9a-f]+", b"FormXob", line) for line in kept if b"/XObject" not in line]


def test_prepare_writes_what_a_user_can_ask(tmp_path, caplog):
    caplog.set_level("INFO", "lockstep")
    sampler = QuestionSampler(ManualSettings(), ManualQuestionSettings())
    questions = ManualQuestionSet(sampler, Split.TEST, 12, per_manual=4)
    write_manuals(questions, tmp_path, "this")
    written = read_question_file(tmp_path / "questions.jsonl").questions
    assert len(written) == 12
    for index, read in enumerate(written):
        (made,) = questions.questions(0, index)
        assert (read.id, read.question, read.options, read.right) == (made.id, made.question, made.options, made.right)
        assert (read.document, read.source, read.evidence_pages) == (made.document, made.source, made.evidence_pages)
        assert (tmp_path / "documents" / read.document).read_bytes() == questions.document(0, index).pdf()
    before = stamps(tmp_path)
    write_manuals(questions, tmp_path, "this")
    assert stamps(tmp_path) == before
    assert "nothing to do" in caplog.text
    write_manuals(ManualQuestionSet(sampler, Split.TEST, 4, seed=1, per_manual=4), tmp_path, "that")
    assert [path.name for path in (tmp_path / "documents").iterdir()] == ["test-0.pdf"]
    assert len((tmp_path / "questions.jsonl").read_text().splitlines()) == 4
    assert read_jsonl(tmp_path / "questions.jsonl")[0]["id"] == "test-0-0"


def stamps(folder: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}

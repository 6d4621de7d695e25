"""Scans two small PDFs and searches their pages; a fake takes the place of the OCR program."""

import itertools

import numpy as np
import pytest
from PIL import Image
from pypdfium2 import PdfDocument

from benchmarks.document_qa import scanned_folder, scans
from benchmarks.document_qa.scan_effect import DPI, scan
from datamodules.document_qa.types.document import Chunk, Page
from tests.benchmarks.conftest import printed
from tests.support.data_files.pdf_files import draw_text, manual, sentence, write_pdf


def pages_of(*texts):
    box = (0.0, 0.0, 1.0, 1.0)
    return tuple(Page(number, (Chunk(number, "text", box, text),)) for number, text in enumerate(texts, 1))


@pytest.fixture
def two_pages(tmp_path):
    """A folder with two PDFs of a page each."""
    (tmp_path / "pdfs").mkdir()
    for seed in range(2):
        manual(tmp_path / f"pdfs/{seed}.pdf", 1, seed)
    return tmp_path / "pdfs"


def test_scans_are_turned_blurred_and_the_same_each_time():
    page = Image.new("RGB", (200, 200), "white")
    page.paste("black", (20, 99, 180, 101))  # a horizontal line
    pixels = np.asarray(scan(page, 3).convert("L"))
    heights = [int(pixels[:, column].argmin()) for column in (30, 170)]
    degrees = abs(np.degrees(np.arctan2(heights[1] - heights[0], 140)))
    assert 0.5 < degrees < 2.5  # 1 to 2, of whole pixels
    assert len(np.unique(pixels)) > 20
    assert scan(page, 3).tobytes() == scan(page, 3).tobytes()
    assert scan(page, 3).tobytes() != scan(page, 4).tobytes()


def test_scans_have_the_drawn_pages_without_text(two_pages, tmp_path):
    manual(two_pages / "2.pdf", 9, 2)
    (tmp_path / "written").mkdir()
    names = scanned_folder.write_scans(sorted(two_pages.iterdir()), 4, tmp_path / "written")
    originals = [PdfDocument(tmp_path / f"written/original/{name}.pdf") for name in names]
    scanned = [sorted((tmp_path / f"written/scans/{name}").iterdir()) for name in names]
    assert [len(pdf) for pdf in originals] == [len(files) for files in scanned]
    texts = [page.get_textpage().get_text_bounded() for pdf in originals for page in pdf]
    assert len(set(texts)) == 4
    assert all("Chapter" in text for text in texts)
    sizes = [page.get_size() for pdf in originals for page in pdf]
    pixels = []
    for file in itertools.chain.from_iterable(scanned):
        with Image.open(file) as image:
            pixels.append(image.size)
    assert np.allclose(np.array(sizes) * DPI / 72, pixels, atol=2)


def test_recall_is_of_all_pages_and_a_tie_counts_as_in_the_product():
    """Pages without a word of the query follow in their order, so the first page is found without any text."""
    pages = pages_of("a red relay", "a green pump", "a blue fuse", *["a cover"] * 4)
    queries = [(0, "red relay"), (1, "green pump"), (6, "blue fuse")]
    assert scanned_folder.recall(pages, queries) == {1: pytest.approx(2 / 3), 5: pytest.approx(2 / 3)}
    assert scanned_folder.recall(pages_of(*[""] * 7), queries) == {1: pytest.approx(1 / 3), 5: pytest.approx(2 / 3)}


def test_a_row_for_each_source_of_text(two_pages, monkeypatch, capsys):
    """The workers of an ingestion are processes of their own, so its OCR is replaced by the text of the PDFs."""
    kinds = []

    def ingested(paths, ocr):
        kinds.append((paths[0].parent.name, ocr))
        if ocr == "tesseract":
            paths = [path.parents[1] / "original" / f"{path.name}.pdf" for path in paths]
        return real(paths, "none")

    real = scanned_folder._ingest
    monkeypatch.setattr(scanned_folder, "_ingest", ingested)
    scans.main(["--folder", str(two_pages), "--pages", "2", "--ocr", "tesseract"])
    assert kinds == [("original", "none"), ("scans", "none"), ("scans", "tesseract")]
    output = capsys.readouterr().out
    assert "2 pages of 2 PDFs as scans, 2 queries" in output
    rows = [[cell.strip() for cell in line.split("│")[1:4]] for line in output.splitlines() if "│" in line]
    assert rows == [
        ["scans, without OCR", "0.500", "1.000"],
        ["scans, tesseract", "1.000", "1.000"],
        ["the PDFs' own text", "1.000", "1.000"],
        ["a page at random", "0.500", "1.000"],
    ]


@pytest.mark.slow  # a page takes seconds of CPU time
@pytest.mark.timeout(600)
def test_rapidocr_reads_what_a_search_needs(two_pages):
    found = scanned_folder.measure(two_pages, 2, "rapidocr")
    assert found["recall"]["none"][1] == 0.5, "in the order of the pages"
    assert found["recall"]["rapidocr"][1] == 1.0, found
    assert "scans, rapidocr" in printed(scanned_folder.table(found))


def test_folders_that_cannot_be_measured_are_reported(tmp_path, capsys):
    def message(folder):
        with pytest.raises(SystemExit) as stopped:
            scans.main(["--folder", str(folder)])
        assert stopped.value.code == 2
        return capsys.readouterr().err

    assert "is not a folder" in message(tmp_path / "none")
    (tmp_path / "corrupt").mkdir()
    (tmp_path / "corrupt/a.pdf").write_bytes(b"%PDF-1.7 cut off")
    assert "a.pdf: cannot be read as a PDF" in message(tmp_path / "corrupt")
    (tmp_path / "short").mkdir()
    write_pdf(tmp_path / "short/a.pdf", lambda canvas: draw_text(canvas, sentence(0, words=3), 50))
    assert "none of 1 pages has a sentence for a query" in message(tmp_path / "short")

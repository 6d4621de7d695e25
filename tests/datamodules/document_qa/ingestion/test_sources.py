"""A folder has the documents that the ingestion reads: files of known kinds, and folders of page images."""

import pytest
from PIL import Image

from datamodules.document_qa.ingestion.document_cache import DocumentCache
from datamodules.document_qa.ingestion.ingest import ingest
from datamodules.document_qa.ingestion.settings import IngestionSettings
from datamodules.document_qa.ingestion.sources import find_documents
from tests.support.data_files.pdf_files import manual
from tests.support.data_files.vision_language_files import png

COLORS = ((255, 0, 0), (0, 255, 0), (0, 0, 255))


def test_hidden_and_other_files_of_a_folder_are_no_documents(tmp_path):
    folder = tmp_path / "documents"
    for name in ("scans", "empty", ".hidden"):
        (folder / name).mkdir(parents=True)
    (folder / "scans/1.png").write_bytes(png(COLORS[0]))
    for name in ("b.PDF", "a.md", "page.jpeg", "notes.txt", ".c.pdf"):
        (folder / name).touch()
    assert [path.name for path in find_documents(folder)] == ["a.md", "b.PDF", "page.jpeg", "scans"]
    with pytest.raises(ValueError, match="gone is not a folder"):
        find_documents(tmp_path / "gone")


def test_page_images_are_ordered_by_their_numbers(tmp_path, read):
    folder = tmp_path / "scans"
    folder.mkdir()
    for name, color in zip(("page 2.png", "page 10.jpg", "page 1.png"), COLORS, strict=True):
        (folder / name).write_bytes(png(color, 60, "JPEG" if name.endswith("jpg") else "PNG"))
    (folder / "notes.txt").write_text("not a page")
    document = read(folder)
    seen = [document.picture(page).getpixel((30, 30)) for page in (1, 2, 3)]
    for actual, expected in zip(seen, (COLORS[2], COLORS[0], COLORS[1]), strict=True):
        assert actual == pytest.approx(expected, abs=3)
    assert [chunk[1:] for page in document.pages for chunk in page.chunks] == [("figure", (0, 0, 1, 1), "")] * 3


def test_a_page_more_is_noticed(tmp_path):
    folder = tmp_path / "scans"
    folder.mkdir()
    (folder / "1.png").write_bytes(png(COLORS[0]))
    settings = IngestionSettings(workers=1)
    assert len(ingest([folder], tmp_path / "cache", settings).documents["scans"].pages) == 1
    (folder / "2.png").write_bytes(png(COLORS[1]))
    assert len(ingest([folder], tmp_path / "cache", settings).documents["scans"].pages) == 2


def test_a_single_image_is_a_page_of_bounded_size(tmp_path, read):
    path = tmp_path / "scan.png"
    Image.new("RGB", (400, 100), "red").save(path)
    assert read(path, max_page_pixels=10_000).picture(1).size == (200, 50)


def test_images_that_cannot_be_pages(tmp_path, read, monkeypatch):
    folder = tmp_path / "scans"
    folder.mkdir()
    (folder / "1.png").write_bytes(png(COLORS[0]))
    (folder / "2.png").write_bytes(png(COLORS[1], 500)[:60])
    assert "2.png: found 60 bytes" in read(folder)
    (folder / "2.png").write_bytes(png(COLORS[1]))
    assert "found 2 pages, ingestion.max_pages allows 1" in read(folder, max_pages=1)
    monkeypatch.setattr("datamodules.document_qa.ingestion.readers.page_images.MAX_PIXELS", 30)
    assert "1.png: found an image of 8 x 8" in read(folder, dpi=37)


def test_find_documents_reads_what_ingest_takes(tmp_path):
    manual(tmp_path / "a.pdf", 1)
    ingested = ingest(find_documents(tmp_path), tmp_path / "cache", IngestionSettings(dpi=24, workers=1))
    assert list(ingested.documents) == ["a.pdf"]


def test_a_document_under_the_right_name_is_read_though_it_was_refused_under_a_wrong_one(tmp_path, read):
    contents = {
        ".png": png(COLORS[0]),
        ".pdf": manual(tmp_path / "manual.pdf", 1).read_bytes(),
        ".md": b"# A title\n\nA text.",
    }
    for suffix, content in contents.items():
        for wrong in contents.keys() - {suffix}:
            path = tmp_path / f"wrong{suffix[1:]}{wrong}"
            path.write_bytes(content)
            assert isinstance(read(path), str), path
        path.with_suffix(suffix).write_bytes(content)
        assert len(read(path.with_suffix(suffix)).pages) == 1, path.with_suffix(suffix)


def test_an_empty_document_of_each_kind_has_its_own_reason(tmp_path, read):
    reasons = {}
    for name in ("a.png", "b.png", "a.pdf", "a.md"):
        (tmp_path / name).touch()
        reasons[name] = read(tmp_path / name)
    assert reasons["a.png"] == reasons["b.png"]
    assert reasons["a.png"].startswith("found no bytes, expected an image")
    assert reasons["a.pdf"] == "not a PDF, or corrupt"
    assert reasons["a.md"] == "it has no pages"


def test_another_parser_of_markdown_changes_the_keys_of_markdown_alone(tmp_path):
    """Documents of users are divided into splits by their keys, so those of PDFs must stay."""
    cache = DocumentCache(tmp_path, IngestionSettings())
    found = {name: cache.key("0" * 64, tmp_path / name) for name in ("a.pdf", "scan.png", "a.md", "a.markdown")}
    assert found["a.pdf"] == found["scan.png"] == "7861a981625951a188e3b828073e4898"  # of version 0.1.0
    assert found["a.md"] == found["a.markdown"] != found["a.pdf"]

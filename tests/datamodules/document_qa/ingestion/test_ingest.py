"""Documents are ingested once, and again after a change of the document or of the settings."""

import json
import os
import shutil
from pathlib import Path

import pytest

from datamodules.document_qa.ingestion.ingest import ingest, open_ingested
from datamodules.document_qa.ingestion.settings import IngestionSettings
from tests.support.data_files.pdf_files import manual

SETTINGS = IngestionSettings(dpi=24, workers=2)


def test_the_second_time_nothing_is_done_nor_read(documents, tmp_path, none_started, logged, monkeypatch):
    cache = tmp_path / "cache"
    ingested = ingest(documents, cache, SETTINGS)
    assert [len(document.pages) for document in ingested.documents.values()] == [2, 3, 1]
    assert list(ingested.documents) == ["a.pdf", "deadly.pdf", "z.pdf"]
    assert ingested.broken == {}
    assert any("3 documents ingested into" in line and "6 pages" in line for line in logged())
    none_started()
    opened, opens = [], Path.open
    monkeypatch.setattr(Path, "open", lambda self, *args, **keys: opened.append(self) or opens(self, *args, **keys))
    again = ingest(documents, cache, SETTINGS)
    assert "3 documents already ingested" in logged()[-1]
    assert "nothing to do" in logged()[-1]
    assert [path.name for path in opened] == ["known.json"]
    assert [document.folder for document in again.documents.values()] == [
        document.folder for document in ingested.documents.values()
    ]
    assert open_ingested(documents, cache, SETTINGS).documents.keys() == ingested.documents.keys()


def test_new_and_changed_documents_are_ingested(documents, tmp_path, logged):
    cache = tmp_path / "cache"
    before = ingest(documents[:2], cache, SETTINGS).documents
    with pytest.raises(ValueError, match=r"z\.pdf: not ingested .* run `python train.py prepare`"):
        open_ingested(documents, cache, SETTINGS)
    manual(documents[0], 4)
    os.utime(documents[0], ns=(1, 1))
    after = ingest(documents, cache, SETTINGS).documents
    assert "2 documents ingested" in logged()[-1]
    assert "5 pages" in logged()[-1]
    assert len(after["a.pdf"].pages) == 4
    assert len(after["z.pdf"].pages) == 1
    assert after["deadly.pdf"].folder == before["deadly.pdf"].folder


def test_a_document_that_moved_is_looked_at_but_not_made_again(documents, tmp_path, logged):
    cache = tmp_path / "cache"
    before = ingest(documents, cache, SETTINGS).documents
    moved = shutil.copy(documents[0], tmp_path / "moved.pdf")
    after = ingest([moved], cache, SETTINGS).documents
    assert "0 pages" in logged()[-1]
    assert after["moved.pdf"].folder == before["a.pdf"].folder
    assert after["moved.pdf"].name == "moved.pdf"


def test_other_settings_are_another_document(documents, tmp_path):
    cache = tmp_path / "cache"
    first = ingest(documents[:1], cache, SETTINGS).documents["a.pdf"]
    with pytest.raises(ValueError, match="not ingested"):
        open_ingested(documents[:1], cache, IngestionSettings(dpi=48))
    second = ingest(documents[:1], cache, IngestionSettings(dpi=48)).documents["a.pdf"]
    assert second.picture(1).width == pytest.approx(2 * first.picture(1).width, abs=2)


def test_another_document_with_the_old_time_is_ingested(documents, tmp_path):
    """`cp -p` keeps the time of the last write, and the new document has the size of the old."""
    cache = tmp_path / "cache"
    first, other = manual(tmp_path / "m.pdf", 1, seed=1), manual(tmp_path / "other.pdf", 1, seed=2)
    size = max(first.stat().st_size, other.stat().st_size)
    for path in (first, other):
        path.write_bytes(path.read_bytes() + b"\n" * (size - path.stat().st_size))
        os.utime(path, ns=(4_000_000_000_000_000_000,) * 2)  # in the year 2096
    before = ingest([first], cache, SETTINGS).documents["m.pdf"]
    shutil.copy2(other, first)
    with pytest.raises(ValueError, match="not ingested .* or changed since"):
        open_ingested([first], cache, SETTINGS)
    after = ingest([first], cache, SETTINGS).documents["m.pdf"]
    assert "manual 2" in after.pages[0].chunks[0].text
    assert "manual 1" in before.pages[0].chunks[0].text


def test_other_permissions_and_links_are_no_change(documents, tmp_path, none_started):
    cache = tmp_path / "cache"
    ingest(documents, cache, SETTINGS)
    os.link(documents[0], tmp_path / "link")
    documents[1].chmod(0o400)
    none_started()
    assert len(open_ingested(documents, cache, SETTINGS).documents) == 3
    assert len(ingest(documents, cache, SETTINGS).documents) == 3
    index = json.loads((cache / "known.json").read_text())["documents"]
    assert index[str(documents[0])]["files"][0][3] == documents[0].stat().st_ctime_ns, "it is compared once"


def test_git_ignores_the_cache(documents, tmp_path):
    ingest(documents[:1], tmp_path / "cache", SETTINGS)
    assert (tmp_path / "cache/.gitignore").read_text() == "*\n"


def test_paths_that_cannot_be_documents(documents, tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "notes.txt").touch()
    for name in ("gone.pdf", "folder", "notes.txt"):
        with pytest.raises(ValueError, match=f"{name}: not a document"):
            ingest([*documents, tmp_path / name], tmp_path / "cache", SETTINGS)


def test_documents_of_one_name_in_two_folders_are_named_by_their_paths(documents, tmp_path):
    other = tmp_path / "folder/a.pdf"
    other.parent.mkdir()
    shutil.copy(documents[2], other)
    found = ingest([*documents, other], tmp_path / "cache", SETTINGS).documents
    assert list(found) == [str(documents[0]), "deadly.pdf", "z.pdf", str(other)]
    assert found[str(other)].folder == found["z.pdf"].folder != found[str(documents[0])].folder
    assert open_ingested([*documents, other], tmp_path / "cache", SETTINGS).documents.keys() == found.keys()


@pytest.mark.parametrize(
    "wrong",
    [
        {"dpi": 0},
        {"max_page_pixels": 9},
        {"max_pages": 0},
        {"heading_level": 7},
        {"workers": 0},
        {"on_broken": "cry"},
        {"engine": "spark"},
        {"ray_address": "127.0.0.1:6379"},
    ],
)
def test_wrong_settings_are_refused_by_name(wrong):
    with pytest.raises(ValueError, match=f"ingestion.{next(iter(wrong))}"):
        IngestionSettings(**wrong).check()

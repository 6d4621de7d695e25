"""Documents that cannot be read stop the ingestion or are skipped, and are tried again when that can help."""

import json
import os
import sys
from pathlib import Path
from unittest.mock import ANY

import pytest

from datamodules.document_qa.ingestion import worker_pool
from datamodules.document_qa.ingestion.document_cache import FAILED, DocumentCache
from datamodules.document_qa.ingestion.ingest import ingest, open_ingested
from datamodules.document_qa.ingestion.settings import IngestionSettings
from tests.support.data_files import pdf_files
from tests.support.data_files.pdf_files import manual

SETTINGS = IngestionSettings(dpi=24, workers=2)
SKIP = IngestionSettings(dpi=24, workers=2, on_broken="skip")


def test_corrupt_documents_stop_or_are_skipped(documents, tmp_path, none_started, logged):
    (tmp_path / "broken.pdf").write_bytes(b"%PDF-1.4 nothing else")
    paths, cache = [*documents, tmp_path / "broken.pdf"], tmp_path / "cache"
    with pytest.raises(
        ValueError, match=r"broken\.pdf: not a PDF, or corrupt\. Remove it, or .*ingestion.on_broken to skip"
    ):
        ingest(paths, cache, SETTINGS)
    ingested = ingest(paths, cache, SKIP)
    assert len(ingested.documents) == 3
    assert ingested.broken == {"broken.pdf": "not a PDF, or corrupt"}
    none_started()
    assert ingest(paths, cache, SKIP).broken == ingested.broken == open_ingested(paths, cache, SKIP).broken
    assert any("broken.pdf is skipped: not a PDF" in line for line in logged())
    assert "3 documents already ingested" in logged()[-1]
    with pytest.raises(ValueError, match="broken.pdf: not a PDF"):
        ingest(paths, cache, SETTINGS)


@pytest.mark.parametrize(
    "do, reason, dies", [(pdf_files.killed, "killed by signal 9", True), (pdf_files.failing, "KeyError", False)]
)
def test_a_process_that_dies_takes_its_document_alone(documents, tmp_path, converting, do, reason, dies):
    cache = tmp_path / "cache"
    converting(do)
    ingested = ingest(documents, cache, SKIP)
    assert set(ingested.documents) == {"a.pdf", "z.pdf"}
    assert reason in ingested.broken["deadly.pdf"]
    assert (
        open_ingested(documents, cache, SKIP).broken
        == ingested.broken
        == open_ingested(documents, cache, SETTINGS).broken
    )
    with pytest.raises(ValueError, match=f"deadly.pdf: .*{reason}"):
        ingest(documents, cache, SETTINGS)
    converting(worker_pool.convert_document)
    if dies:
        assert ingest(documents, cache, SKIP).broken == {}, "the death of a process is no fact about the document"
        assert open_ingested(documents, cache, SKIP).broken == {}
    else:
        assert ingest(documents, cache, SKIP).broken == ingested.broken, "what a reader raised is not tried in vain"
    assert set(ingest(documents, cache, SETTINGS).documents) == {"a.pdf", "deadly.pdf", "z.pdf"}, "it is tried again"


def test_a_mark_of_the_previous_version_is_tried_again(documents, tmp_path, converting):
    """It did not tell a process that died from a reader that failed, and its stamps had no ctime."""
    cache = tmp_path / "cache"
    converting(pdf_files.killed)
    ingest(documents, cache, SKIP)
    index = json.loads((cache / "known.json").read_text())
    for record in index["documents"].values():
        record["files"] = [stamp[:3] for stamp in record["files"]]
    del index["checksum"]
    (cache / "known.json").write_text(json.dumps(index))
    converting(worker_pool.convert_document)
    assert open_ingested(documents[:1], cache, SKIP).documents.keys() == {"a.pdf"}, "its documents are read"
    assert ingest(documents, cache, SKIP).broken == {}


@pytest.mark.parametrize("error", [PermissionError(13, "Permission denied"), OSError(5, "Input/output error")])
def test_a_document_that_cannot_be_opened_is_tried_again(tmp_path, monkeypatch, error):
    path = manual(tmp_path / "a.pdf", 1)
    cache = DocumentCache(tmp_path / "cache", SKIP)
    opens = Path.open

    def refuse(self, *args, **keys):
        if self == path:
            raise error
        return opens(self, *args, **keys)

    monkeypatch.setattr(Path, "open", refuse)
    assert worker_pool.convert_document(path, cache).unopened
    monkeypatch.setattr(Path, "open", opens)
    (tmp_path / "latin.md").write_bytes(b"caf\xe9")
    assert worker_pool.convert_document(tmp_path / "latin.md", cache) == ("", None, ANY, 0, (), False)


def test_an_unreadable_document_is_retried_after_a_change(documents, tmp_path, converting):
    (tmp_path / "latin.md").write_bytes(b"caf\xe9")
    paths, cache = [*documents, tmp_path / "latin.md"], tmp_path / "cache"
    converting(pdf_files.killed)
    ingested = ingest(paths, cache, SKIP)
    assert set(ingested.broken) == {"deadly.pdf", "latin.md"}
    assert open_ingested(paths, cache, SKIP).broken == ingested.broken
    converting(worker_pool.convert_document)
    manual(documents[1], 4)
    (tmp_path / "latin.md").write_text("# A\n\ncafe\n")
    for path in paths:
        os.utime(path, ns=(1, 1))
    assert set(ingest(paths, cache, SKIP).documents) == {"a.pdf", "deadly.pdf", "z.pdf", "latin.md"}


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have names in Unicode only")
def test_a_document_whose_name_is_not_utf_8_is_remembered(tmp_path):
    path = tmp_path / os.fsdecode(b"donn\xe9es.pdf")
    path.write_bytes(b"no PDF")
    cache = DocumentCache(tmp_path / "cache", SETTINGS)
    cache.save_records({str(path): cache.mark_unreadable([path], f"{path.name} is broken", FAILED)})
    assert DocumentCache(tmp_path / "cache", SETTINGS).find(path) == f"{path.name} is broken"

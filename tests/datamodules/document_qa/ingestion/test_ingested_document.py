"""An ingested document keeps few decoded pages, and a corrupt file of it is named with what to delete."""

import pytest

from datamodules.document_qa.ingestion import ingested_document
from datamodules.document_qa.ingestion.ingest import ingest
from datamodules.document_qa.ingestion.settings import IngestionSettings
from tests.support.data_files.pdf_files import manual

SETTINGS = IngestionSettings(dpi=24, workers=2)


def test_few_decoded_pages_are_kept_however_many_documents_are_open(tmp_path):
    paths = [manual(tmp_path / f"{seed}.pdf", 2, seed) for seed in range(6)]
    ingested, decoded = ingest(paths, tmp_path / "cache", SETTINGS).documents.values(), ingested_document._decode
    decoded.cache_clear()
    pictures = [item.picture(1) for item in ingested for _ in range(3)]
    assert decoded.cache_info()[:2] == (12, 6)
    assert decoded.cache_info().currsize == 4
    pictures[-1].paste("red", (0, 0, 9, 9))
    assert list(ingested)[-1].picture(1).tobytes() == pictures[-2].tobytes(), "a copy was painted on"


def test_damaged_caches_say_what_to_delete(documents, tmp_path):
    cache = tmp_path / "cache"
    document = ingest(documents[:1], cache, SETTINGS).documents["a.pdf"]
    (document.folder / "pages/001.png").write_bytes(b"")
    with pytest.raises(ValueError, match="001.png is corrupt .* delete its folder"):
        document.picture(1)
    with pytest.raises(ValueError, match="has pages 1 to 2, not 3"):
        document.picture(3)
    chunks = (document.folder / "chunks.jsonl").read_bytes()
    (document.folder / "chunks.jsonl").write_bytes(chunks.replace(b"Chapter", b"chapter"))
    with pytest.raises(ValueError, match="chunks.jsonl is corrupt .its checksum differs.* delete its folder"):
        _ = document.pages
    with (document.folder / "chunks.jsonl").open("a") as file:
        file.write('{"page": 9}\n')
    with pytest.raises(ValueError, match="chunks.jsonl, line .* is corrupt"):
        _ = document.pages
    description = (document.folder / "document.json").read_text()
    (document.folder / "document.json").write_text(description.replace('"pages": 2', '"pages": 3'))
    with pytest.raises(ValueError, match="document.json is corrupt .*a value has changed.* delete its folder"):
        _ = document.pages
    index = (cache / "known.json").read_text()
    for content in (index.replace('"content": "', '"content": "0'), "[]"):
        (cache / "known.json").write_text(content)
        with pytest.raises(ValueError, match="known.json: is corrupt .*; delete it, and it is created again"):
            ingest(documents, cache, SETTINGS)

"""Tests that documents are ingested once, across processes and kills, and that a broken document harms no other."""

import json
import logging
import multiprocessing
import os
import shutil
import sys
from functools import partial
from pathlib import Path
from unittest.mock import ANY

import pytest

from datamodules.document_qa.ingestion import ingest as module
from datamodules.document_qa.ingestion import ingested_document, worker_pool
from datamodules.document_qa.ingestion.document_cache import FAILED, DocumentCache
from datamodules.document_qa.ingestion.ingest import ingest, open_ingested
from datamodules.document_qa.ingestion.settings import IngestionSettings
from tests.support.data_files import pdf_files
from tests.support.data_files.document_folder import cached_files
from tests.support.data_files.pdf_files import manual

SETTINGS = IngestionSettings(dpi=24, workers=2)
SKIP = IngestionSettings(dpi=24, workers=2, on_broken="skip")


@pytest.fixture
def documents(tmp_path):
    """Three PDFs, the second one called deadly."""
    names = ("a.pdf", "deadly.pdf", "z.pdf")
    return [manual(tmp_path / name, pages, seed=pages) for name, pages in zip(names, (2, 3, 1), strict=True)]


@pytest.fixture
def none_started(monkeypatch):
    """Make every start of a process fail."""

    def start(*_):
        raise AssertionError("a process was started")

    return lambda: monkeypatch.setattr(worker_pool, "_start", start)


@pytest.fixture
def converting(monkeypatch):
    """Replaces what the processes do."""
    return lambda do: monkeypatch.setattr(
        module, "convert_documents", partial(worker_pool.convert_documents, conversion=do)
    )


@pytest.fixture
def logged(caplog):
    log = logging.getLogger("lockstep")
    log.addHandler(caplog.handler)
    caplog.set_level(logging.INFO, "lockstep")
    yield lambda: [record.getMessage() for record in caplog.records]
    log.removeHandler(caplog.handler)


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
    converting(worker_pool.convert)
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
    converting(worker_pool.convert)
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
    assert worker_pool.convert(path, cache).unopened
    monkeypatch.setattr(Path, "open", opens)
    (tmp_path / "latin.md").write_bytes(b"caf\xe9")
    assert worker_pool.convert(tmp_path / "latin.md", cache) == ("", None, ANY, 0, (), False)


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


def test_an_unreadable_document_is_retried_after_a_change(documents, tmp_path, converting):
    (tmp_path / "latin.md").write_bytes(b"caf\xe9")
    paths, cache = [*documents, tmp_path / "latin.md"], tmp_path / "cache"
    converting(pdf_files.killed)
    ingested = ingest(paths, cache, SKIP)
    assert set(ingested.broken) == {"deadly.pdf", "latin.md"}
    assert open_ingested(paths, cache, SKIP).broken == ingested.broken
    converting(worker_pool.convert)
    manual(documents[1], 4)
    (tmp_path / "latin.md").write_text("# A\n\ncafe\n")
    for path in paths:
        os.utime(path, ns=(1, 1))
    assert set(ingest(paths, cache, SKIP).documents) == {"a.pdf", "deadly.pdf", "z.pdf", "latin.md"}


def _ingest_interrupted(documents, cache):
    module.convert_documents = partial(worker_pool.convert_documents, conversion=pdf_files.interrupted)
    ingest(documents, cache, IngestionSettings(dpi=24, workers=1))


def test_a_killed_ingestion_resumes(documents, tmp_path, logged):
    cache = tmp_path / "cache"
    process = multiprocessing.get_context("spawn").Process(target=_ingest_interrupted, args=(documents, cache))
    process.start()
    process.join(150)
    assert process.exitcode == -9
    left = sorted(path.name for path in (cache / "documents").iterdir())
    assert len(left) == 2, "one whole, one half"
    assert left[0].startswith("."), "one whole, one half"
    assert left[0].endswith(".new"), "one whole, one half"
    ingested = ingest(documents, cache, SETTINGS)
    assert "4 pages" in logged()[-1], "what was done was not done again"
    assert len(ingested.documents) == 3
    assert not list((cache / "documents").glob(".*"))
    ingest(documents, tmp_path / "whole", SETTINGS)
    assert cached_files(cache) == cached_files(tmp_path / "whole")


def _ingest_at_once(connection, documents, cache):
    connection.recv()
    connection.send(sorted(str(document.folder) for document in ingest(documents, cache, SETTINGS).documents.values()))


@pytest.mark.slow
def test_two_processes_that_ingest_at_once_read_the_same(tmp_path):
    documents = [manual(tmp_path / f"{seed}.pdf", 2, seed) for seed in range(6)]
    spawn, cache = multiprocessing.get_context("spawn"), tmp_path / "cache"
    pipes = [spawn.Pipe() for _ in range(2)]
    both = [spawn.Process(target=_ingest_at_once, args=(remote, documents, cache)) for _, remote in pipes]
    for process in both:
        process.start()
    for own, _ in pipes:
        own.send("now")
    found = [own.recv() if own.poll(150) else None for own, _ in pipes]
    for process in both:
        process.join(150)
    assert found[0] == found[1]
    assert len(found[0]) == 6
    assert [process.exitcode for process in both] == [0, 0]
    ingest(documents, tmp_path / "alone", SETTINGS)
    assert cached_files(cache) == cached_files(tmp_path / "alone")


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


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have names in Unicode only")
def test_a_document_whose_name_is_not_utf_8_is_remembered(tmp_path):
    path = tmp_path / os.fsdecode(b"donn\xe9es.pdf")
    path.write_bytes(b"no PDF")
    cache = DocumentCache(tmp_path / "cache", SETTINGS)
    cache.save_records({str(path): cache.mark_unreadable([path], f"{path.name} is broken", FAILED)})
    assert DocumentCache(tmp_path / "cache", SETTINGS).find(path) == f"{path.name} is broken"


@pytest.mark.parametrize(("cpus", "workers"), [(0.5, 1), (2.5, 2), (64.0, 64)])
def test_there_is_a_worker_for_each_cpu_of_the_control_groups_quota(monkeypatch, cpus, workers):
    monkeypatch.setattr(worker_pool, "available_cpus", lambda: cpus)
    assert worker_pool.default_workers() == workers

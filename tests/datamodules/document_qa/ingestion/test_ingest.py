"""Documents are ingested once, whoever does it, however often it is stopped; a broken one harms no other."""

import logging
import multiprocessing
import os
import shutil
from functools import partial
from pathlib import Path

import pytest

from datamodules.document_qa.ingestion import ingest as module
from datamodules.document_qa.ingestion import ingested_document, workers
from datamodules.document_qa.ingestion.ingest import ingest, ingested
from datamodules.document_qa.ingestion.settings import IngestionSettings
from tests import pdf_files
from tests.pdf_files import manual

SETTINGS = IngestionSettings(dpi=24, workers=2)
SKIP = IngestionSettings(dpi=24, workers=2, on_broken="skip")


@pytest.fixture
def documents(tmp_path):
    """Three PDFs, the second one called deadly."""
    names = ("a.pdf", "deadly.pdf", "z.pdf")
    return [manual(tmp_path / name, pages, seed=pages) for name, pages in zip(names, (2, 3, 1), strict=True)]


@pytest.fixture
def none_started(monkeypatch):
    """Whoever starts a process fails."""

    def start(*_):
        raise AssertionError("a process was started")

    return lambda: monkeypatch.setattr(workers, "_start", start)


@pytest.fixture
def converting(monkeypatch):
    """Replaces what the processes do."""
    return lambda do: monkeypatch.setattr(module, "converted", partial(workers.converted, do=do))


@pytest.fixture
def said(caplog):
    log = logging.getLogger("lockstep")
    log.addHandler(caplog.handler)
    caplog.set_level(logging.INFO, "lockstep")
    yield lambda: [record.getMessage() for record in caplog.records]
    log.removeHandler(caplog.handler)


def contents(cache):
    """All files of documents, by their names."""
    files = sorted(path for path in (cache / "documents").rglob("*") if path.is_file())
    return {str(path.relative_to(cache)): path.read_bytes() for path in files}


def test_the_second_time_nothing_is_done_nor_read(documents, tmp_path, none_started, said, monkeypatch):
    cache = tmp_path / "cache"
    found = ingest(documents, cache, SETTINGS)
    assert [len(document.pages) for document in found.documents.values()] == [2, 3, 1]
    assert list(found.documents) == ["a.pdf", "deadly.pdf", "z.pdf"] and found.broken == {}
    assert any("3 documents ingested into" in line and "6 pages" in line for line in said())
    none_started()
    opened = []
    monkeypatch.setattr(Path, "open", lambda self, *args, **keys: opened.append(self) or open(self, *args, **keys))
    again = ingest(documents, cache, SETTINGS)
    assert "3 documents ingested already" in said()[-1] and "nothing to do" in said()[-1]
    assert [path.name for path in opened] == ["known.json"]
    assert [one.folder for one in again.documents.values()] == [one.folder for one in found.documents.values()]
    assert ingested(documents, cache, SETTINGS).documents.keys() == found.documents.keys()


def test_what_is_new_or_was_written_to_is_ingested(documents, tmp_path, said):
    cache = tmp_path / "cache"
    before = ingest(documents[:2], cache, SETTINGS).documents
    with pytest.raises(ValueError, match=r"z\.pdf: not ingested .* run `train.py prepare`"):
        ingested(documents, cache, SETTINGS)
    manual(documents[0], 4)
    os.utime(documents[0], ns=(1, 1))
    after = ingest(documents, cache, SETTINGS).documents
    assert "2 documents ingested" in said()[-1] and "5 pages" in said()[-1]
    assert len(after["a.pdf"].pages) == 4 and len(after["z.pdf"].pages) == 1
    assert after["deadly.pdf"].folder == before["deadly.pdf"].folder


def test_a_document_that_moved_is_looked_at_but_not_made_again(documents, tmp_path, said):
    cache = tmp_path / "cache"
    before = ingest(documents, cache, SETTINGS).documents
    moved = shutil.copy(documents[0], tmp_path / "moved.pdf")
    after = ingest([moved], cache, SETTINGS).documents
    assert "0 pages" in said()[-1] and after["moved.pdf"].folder == before["a.pdf"].folder
    assert after["moved.pdf"].name == "moved.pdf"


def test_other_settings_are_another_document(documents, tmp_path):
    cache = tmp_path / "cache"
    first = ingest(documents[:1], cache, SETTINGS).documents["a.pdf"]
    with pytest.raises(ValueError, match="not ingested"):
        ingested(documents[:1], cache, IngestionSettings(dpi=48))
    second = ingest(documents[:1], cache, IngestionSettings(dpi=48)).documents["a.pdf"]
    assert second.picture(1).width == pytest.approx(2 * first.picture(1).width, abs=2)


def test_broken_documents_stop_or_are_left_out(documents, tmp_path, none_started, said):
    (tmp_path / "broken.pdf").write_bytes(b"%PDF-1.4 nothing else")
    paths, cache = [*documents, tmp_path / "broken.pdf"], tmp_path / "cache"
    with pytest.raises(ValueError, match=r"broken\.pdf: it is no PDF, or damaged\. Remove it, or .*on_broken: skip"):
        ingest(paths, cache, SETTINGS)
    found = ingest(paths, cache, SKIP)
    assert len(found.documents) == 3 and found.broken == {"broken.pdf": "it is no PDF, or damaged"}
    none_started()
    assert ingest(paths, cache, SKIP).broken == found.broken == ingested(paths, cache, SKIP).broken
    assert any("broken.pdf is left out: it is no PDF" in line for line in said())
    assert "3 documents ingested already" in said()[-1]
    with pytest.raises(ValueError, match="broken.pdf: it is no PDF"):
        ingest(paths, cache, SETTINGS)


@pytest.mark.parametrize("do, reason", [(pdf_files.killed, "killed by signal 9"), (pdf_files.failing, "KeyError")])
def test_a_process_that_dies_takes_its_document_alone(documents, tmp_path, converting, do, reason):
    cache = tmp_path / "cache"
    converting(do)
    found = ingest(documents, cache, SKIP)
    assert set(found.documents) == {"a.pdf", "z.pdf"} and reason in found.broken["deadly.pdf"]
    assert ingested(documents, cache, SKIP).broken == found.broken == ingested(documents, cache, SETTINGS).broken
    with pytest.raises(ValueError, match=f"deadly.pdf: .*{reason}"):
        ingest(documents, cache, SETTINGS)
    converting(workers.convert)
    assert ingest(documents, cache, SKIP).broken == found.broken, "it is not tried in vain each time"
    assert set(ingest(documents, cache, SETTINGS).documents) == {"a.pdf", "deadly.pdf", "z.pdf"}, "it is tried again"


def test_what_could_not_be_read_is_tried_again_when_written_to(documents, tmp_path, converting):
    (tmp_path / "latin.md").write_bytes(b"caf\xe9")
    paths, cache = [*documents, tmp_path / "latin.md"], tmp_path / "cache"
    converting(pdf_files.killed)
    found = ingest(paths, cache, SKIP)
    assert set(found.broken) == {"deadly.pdf", "latin.md"}
    assert ingested(paths, cache, SKIP).broken == found.broken
    converting(workers.convert)
    manual(documents[1], 4)
    (tmp_path / "latin.md").write_text("# A\n\ncafe\n")
    for path in paths:
        os.utime(path, ns=(1, 1))
    assert set(ingest(paths, cache, SKIP).documents) == {"a.pdf", "deadly.pdf", "z.pdf", "latin.md"}


def _ingest_interrupted(documents, cache):
    module.converted = partial(workers.converted, do=pdf_files.interrupted)
    ingest(documents, cache, IngestionSettings(dpi=24, workers=1))


def test_what_was_killed_in_the_middle_goes_on(documents, tmp_path, said):
    cache = tmp_path / "cache"
    process = multiprocessing.get_context("spawn").Process(target=_ingest_interrupted, args=(documents, cache))
    process.start()
    process.join(150)
    assert process.exitcode == -9
    left = sorted(path.name for path in (cache / "documents").iterdir())
    assert len(left) == 2 and left[0].startswith(".") and left[0].endswith(".new"), "one whole, one half"
    found = ingest(documents, cache, SETTINGS)
    assert "4 pages" in said()[-1], "what was done was not done again"
    assert len(found.documents) == 3 and not list((cache / "documents").glob(".*"))
    ingest(documents, tmp_path / "whole", SETTINGS)
    assert contents(cache) == contents(tmp_path / "whole")


def _ingest_at_once(connection, documents, cache):
    connection.recv()
    connection.send(sorted(str(one.folder) for one in ingest(documents, cache, SETTINGS).documents.values()))


def test_two_processes_at_once(tmp_path):
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
    assert found[0] == found[1] and len(found[0]) == 6 and [process.exitcode for process in both] == [0, 0]
    ingest(documents, tmp_path / "alone", SETTINGS)
    assert contents(cache) == contents(tmp_path / "alone")


def test_paths_that_cannot_be_documents(documents, tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "notes.txt").touch()
    for name in ("gone.pdf", "folder", "notes.txt"):
        with pytest.raises(ValueError, match=f"{name}: no document"):
            ingest([*documents, tmp_path / name], tmp_path / "cache", SETTINGS)
    shutil.copy(documents[0], tmp_path / "folder/a.pdf")
    with pytest.raises(ValueError, match="two documents of one name"):
        ingest([*documents, tmp_path / "folder/a.pdf"], tmp_path / "cache", SETTINGS)


def test_few_decoded_pages_are_kept_however_many_documents_are_open(tmp_path):
    paths = [manual(tmp_path / f"{seed}.pdf", 2, seed) for seed in range(6)]
    found, decoded = ingest(paths, tmp_path / "cache", SETTINGS).documents.values(), ingested_document._decoded
    decoded.cache_clear()
    pictures = [one.picture(1) for one in found for _ in range(3)]
    assert decoded.cache_info()[:2] == (12, 6) and decoded.cache_info().currsize == 4
    pictures[-1].paste("red", (0, 0, 9, 9))
    assert list(found)[-1].picture(1).tobytes() == pictures[-2].tobytes(), "a copy was painted on"


def test_damaged_caches_say_what_to_delete(documents, tmp_path):
    cache = tmp_path / "cache"
    document = ingest(documents[:1], cache, SETTINGS).documents["a.pdf"]
    (document.folder / "pages/001.png").write_bytes(b"")
    with pytest.raises(ValueError, match="001.png is damaged .* delete its folder"):
        document.picture(1)
    with pytest.raises(ValueError, match="has pages 1 to 2, not 3"):
        document.picture(3)
    with (document.folder / "chunks.jsonl").open("a") as file:
        file.write('{"page": 9}\n')
    with pytest.raises(ValueError, match="chunks.jsonl, line .* is damaged"):
        _ = document.pages
    (cache / "known.json").write_text("[]")
    with pytest.raises(ValueError, match="known.json: cannot be read"):
        ingest(documents, cache, SETTINGS)


@pytest.mark.parametrize(
    "wrong", [{"dpi": 0}, {"max_page_pixels": 9}, {"max_pages": 0}, {"heading_level": 7}, {"workers": 0},
              {"on_broken": "cry"}],
)  # fmt: skip
def test_settings_are_checked(wrong):
    with pytest.raises(ValueError, match=f"ingestion.{next(iter(wrong))}"):
        IngestionSettings(**wrong).check()

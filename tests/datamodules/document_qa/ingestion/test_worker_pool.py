"""Processes that ingest are killed, run at once, and are as many as the CPUs allow."""

import multiprocessing
from functools import partial

import pytest

from datamodules.document_qa.ingestion import ingest as module
from datamodules.document_qa.ingestion import worker_pool
from datamodules.document_qa.ingestion.ingest import ingest
from datamodules.document_qa.ingestion.settings import IngestionSettings
from tests.support.data_files import pdf_files
from tests.support.data_files.document_folder import cached_files
from tests.support.data_files.pdf_files import manual

SETTINGS = IngestionSettings(dpi=24, workers=2)


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


@pytest.mark.parametrize(("cpus", "workers"), [(0.5, 1), (2.5, 2), (64.0, 64)])
def test_there_is_a_worker_for_each_cpu_of_the_control_groups_quota(monkeypatch, cpus, workers):
    monkeypatch.setattr(worker_pool, "available_cpus", lambda: cpus)
    assert worker_pool.default_workers() == workers

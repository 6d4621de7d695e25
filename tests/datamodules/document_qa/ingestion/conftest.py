"""Fixtures: three documents to ingest, what the ingestion logs, and stand-ins for its processes."""

import logging
from functools import partial

import pytest

from datamodules.document_qa.ingestion import ingest as module
from datamodules.document_qa.ingestion import worker_pool
from datamodules.document_qa.ingestion.convert import convert_document
from datamodules.document_qa.ingestion.document_cache import DocumentCache
from datamodules.document_qa.ingestion.settings import IngestionSettings
from tests.support.data_files.pdf_files import manual


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
    """Replace what the processes do with a document."""
    return lambda do: monkeypatch.setattr(
        module, "convert_documents", partial(worker_pool.convert_documents, conversion=do)
    )


@pytest.fixture
def logged(caplog):
    """A function that returns the messages that Lockstep has logged."""
    log = logging.getLogger("lockstep")
    log.addHandler(caplog.handler)
    caplog.set_level(logging.INFO, "lockstep")
    yield lambda: [record.getMessage() for record in caplog.records]
    log.removeHandler(caplog.handler)


@pytest.fixture
def read(tmp_path):
    """A function that converts a document; it returns the document, or the reason why there is none."""

    def one(path, **settings):
        cache = DocumentCache(tmp_path / "cache", IngestionSettings(**{"dpi": 36, **settings}))
        done = convert_document(path, cache)
        return done.broken or cache.find_by_key(done.key, path.name)

    return one

"""Fixtures of the tests of chat files."""

import pytest

from datamodules.vision_language.files import parquet_rewrite, parquet_row_groups
from datamodules.vision_language.files.lru_cache import SizedLRUCache
from tests.support.data_files.parquet_chat_files import SEVERAL, TEXT
from tests.support.data_files.vision_language_files import colored, write_minimind_parquet


@pytest.fixture(autouse=True)
def tables(monkeypatch):
    """An empty memory, as of a process that has just begun."""
    cache = SizedLRUCache(parquet_row_groups.CACHE_BYTES, lambda table: table.nbytes)
    monkeypatch.setattr(parquet_row_groups, "tables", cache)
    monkeypatch.setattr(parquet_row_groups, "_files", SizedLRUCache(64, lambda file: 1))
    return cache


@pytest.fixture
def large(tmp_path, monkeypatch):
    """A file that is too large to be read in parts, as sizes go in this test."""
    monkeypatch.setattr(parquet_rewrite, "MAX_ROWS", 30)
    monkeypatch.setattr(parquet_rewrite, "GROUP_SIZE", 2000)
    samples = [*map(colored, range(75)), TEXT, SEVERAL]
    return write_minimind_parquet(tmp_path / "large.parquet", samples), samples

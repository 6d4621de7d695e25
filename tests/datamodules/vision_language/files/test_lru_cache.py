"""Tests that a cache keeps no more than its budget."""

import pytest

from datamodules.vision_language.files.lru_cache import SizedLRUCache


def test_no_more_is_kept_than_the_budget():
    cache = SizedLRUCache(10, len)
    for size in (4, 4, 3, 11, 2):
        cache.get(size, lambda: "x" * size)  # noqa: B023
        assert cache.used <= max(10, size)
    assert cache.misses == 4  # the second 4 was there
    assert cache.get(2, lambda: pytest.fail("it is there")) == "xx"

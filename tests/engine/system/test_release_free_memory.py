"""Freed blocks between blocks in use go back to the system."""

import sys

import numpy as np
import psutil
import pytest

from engine.system.host_memory import release_free_memory


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc has malloc_trim")
def test_memory_between_blocks_in_use_is_returned():
    process = psutil.Process()
    blocks = [np.ones(1 << 14, dtype=np.uint8) for _ in range(8192)]  # small enough for the heap
    kept, full = blocks[::32], process.memory_info().rss
    del blocks
    release_free_memory()
    assert process.memory_info().rss < full - (64 << 20)
    assert all(block.all() for block in kept)

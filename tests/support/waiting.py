"""Waits for a condition, with a time limit."""

import time
from collections.abc import Callable


def wait_until(condition: Callable[[], object], timeout: float = 60, found: Callable[[], object] = lambda: "") -> None:
    """Wait until the condition is true; after `timeout` seconds fail with the text of `found`."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, found()
        time.sleep(0.01)

"""Fixture `forked_sides`: processes of a benchmark that pay for no import."""

from multiprocessing import forkserver, get_context
from multiprocessing.context import ForkServerContext

import psutil
import pytest

from benchmarks import side
from benchmarks.side import one_thread
from tests import tiers

IMPORTED = [
    "lightning.pytorch",
    "transformers.models.qwen2.modeling_qwen2",
    "benchmarks.vision_language.trainers",
    "commands.cli.main",
]
"""What takes the sides seconds to import."""


@pytest.fixture(scope="session")
def server() -> ForkServerContext:
    """Start the process from which sides are forked; its CPU seconds are counted as those of other children."""
    context = get_context("forkserver")
    context.set_forkserver_preload(IMPORTED)
    with one_thread():  # the sides have the variables of the server
        forkserver.ensure_running()
    children = psutil.Process().children()
    tiers.preloaded.extend(child for child in children if "multiprocessing.forkserver" in " ".join(child.cmdline()))
    return context


@pytest.fixture
def forked_sides(monkeypatch: pytest.MonkeyPatch, server: ForkServerContext) -> ForkServerContext:
    """Fork the sides from a process that has imported all that they need. A benchmark itself starts them anew."""
    monkeypatch.setattr(side, "get_context", lambda method: server)
    return server

"""Fixture `forked_variants`: processes of a benchmark that pay for no import; and the text of a table."""

import io
from multiprocessing import forkserver, get_context
from multiprocessing.context import ForkServerContext

import psutil
import pytest
from rich.console import Console
from rich.table import Table

from benchmarks import variant_process
from benchmarks.variant_process import one_thread
from tests import tiers

IMPORTED = [
    "lightning.pytorch",
    "transformers.models.qwen2.modeling_qwen2",
    "benchmarks.vision_language.trainers",
    "commands.cli.main",
]
"""What takes the variants seconds to import."""


def printed(table: Table) -> str:
    """Return a table as a wide terminal shows it."""
    text = io.StringIO()
    Console(file=text, width=160).print(table)
    return text.getvalue()


@pytest.fixture(scope="session")
def server() -> ForkServerContext:
    """Start the process from which variants are forked; its CPU seconds are counted as those of other children."""
    context = get_context("forkserver")
    context.set_forkserver_preload(IMPORTED)
    with one_thread():  # the variants have the variables of the server
        forkserver.ensure_running()
    children = psutil.Process().children()
    tiers.preloaded.extend(child for child in children if "multiprocessing.forkserver" in " ".join(child.cmdline()))
    return context


@pytest.fixture
def forked_variants(monkeypatch: pytest.MonkeyPatch, server: ForkServerContext) -> ForkServerContext:
    """Fork the variants from a process that has imported all that they need. A benchmark itself starts them anew."""
    monkeypatch.setattr(variant_process, "get_context", lambda method: server)
    return server

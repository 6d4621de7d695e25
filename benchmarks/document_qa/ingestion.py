"""Measures the ingestion of many pages: throughput, memory, and the duration of a second ingestion."""

import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from rich.table import Table

from benchmarks.document_qa.memory import PeakMemory
from benchmarks.environment import number, spread
from benchmarks.variant_process import VariantProcess, kill_all

_PROJECT = Path(__file__).parents[2]
_PAGES = 20  # of a document
_FEWER = 5  # factor between the numbers of documents of two runs, whose memory must be equal

_AGAIN = """
import logging, sys, time
from pathlib import Path
from datamodules.document_qa.ingestion.ingest import ingest
from datamodules.document_qa.ingestion.settings import IngestionSettings
from datamodules.document_qa.ingestion.sources import find_documents
imported = time.perf_counter()
logging.basicConfig(level=logging.INFO, stream=sys.stderr)
found = ingest(find_documents(Path(sys.argv[1])), Path(sys.argv[2]), IngestionSettings())
print(time.perf_counter() - imported, len(found.documents))
"""


def measure(pages: int, repeats: int) -> dict[str, Any]:
    """Return {name: a number for each turn}, in bytes, seconds and pages."""
    found: dict[str, Any] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        paths = _write(Path(folder) / "documents", pages)
        for turn in range(repeats):
            # Documents pass through one by one: five times as many must not need more memory.
            fewer = _ingest(paths[: max(1, len(paths) // _FEWER)], Path(folder) / f"fewer-{turn}")
            root = Path(folder) / f"all-{turn}"
            ingestion = _ingest(paths, root / "ingested")  # where DocumentQuestions stores them
            again = _again(paths[0].parent, root / "ingested", len(paths))
            found["pages"].append(ingestion["pages"])
            found["documents"].append(len(paths))
            found["rate"].append(ingestion["pages"] / ingestion["seconds"])
            found["cpu"].append(ingestion["pages"] / ingestion["cpu"])
            found["again"].append(again)
            for name in ("parent", "worker"):
                found[name].append(ingestion[name])
                found[f"{name}_of_fewer"].append(fewer[name])
    return dict(found)


def table(found: dict[str, Any]) -> Table:
    """Return a table of the measurements with their spread, beside their goals."""
    table = Table(title="ingestion", title_justify="left")
    for heading in ("", "median (range)", "goal"):
        table.add_column(heading, justify="right" if heading.startswith("median") else "left")
    megabytes = {name: [value / 1e6 for value in found[name]] for name in found if name[:6] in ("parent", "worker")}
    documents = found["documents"][0]
    rows = (
        (f"pages, in {documents} PDFs", number(found["pages"][0]), ""),
        ("pages per second", spread(found["rate"]), ""),
        ("pages per CPU second", spread(found["cpu"]), ""),
        ("peak of the process, MB", spread(megabytes["parent"]), "no more than of fewer"),
        (f"  of {_FEWER} times fewer documents, MB", spread(megabytes["parent_of_fewer"]), ""),
        ("peak of a worker, MB", spread(megabytes["worker"]), "no more than of fewer"),
        (f"  of {_FEWER} times fewer documents, MB", spread(megabytes["worker_of_fewer"]), ""),
        ("the second time, seconds", spread(found["again"]), "at most 2"),
    )
    for row in rows:
        table.add_row(*row)
    return table


def _write(folder: Path, pages: int) -> list[Path]:
    from tests.support.data_files.pdf_files import manual

    folder.mkdir()
    return [manual(folder / f"{seed:04d}.pdf", _PAGES, seed) for seed in range(-(-pages // _PAGES))]


def _ingest(paths: Sequence[Path], cache: Path) -> dict[str, float]:
    """Ingest in a separate process, which has nothing else in its memory."""
    variant = VariantProcess("ingestion", _variant, list(paths), cache)
    try:
        with PeakMemory(variant.receive()) as memory:
            variant.connection.send("go")
            seconds, cpu = variant.receive()
        variant.process.join()
    finally:
        kill_all(variant.pid)
    pages = sum(1 for _ in cache.glob("documents/*/pages/*.png"))
    return {"seconds": seconds, "cpu": cpu, "pages": pages, "parent": memory.parent, "worker": memory.worker}


def _variant(connection: Connection, paths: Sequence[Path], cache: Path) -> None:
    from benchmarks.cpu_time import cpu_seconds
    from datamodules.document_qa.ingestion.ingest import ingest
    from datamodules.document_qa.ingestion.settings import IngestionSettings

    connection.send(os.getpid())
    connection.recv()
    start = time.perf_counter()
    ingest(paths, cache, IngestionSettings())
    seconds = time.perf_counter() - start
    # Workers are children of this process, and have ended by now.
    connection.send((seconds, cpu_seconds()))


def _again(folder: Path, cache: Path, documents: int) -> float:
    """Return the seconds of a second ingestion, without its imports."""
    command = [sys.executable, "-c", _AGAIN, str(folder), str(cache)]
    done = subprocess.run(command, cwd=_PROJECT, capture_output=True, text=True, check=True)
    # Otherwise the time would be that of an ingestion.
    if "nothing to do" not in done.stderr.lower():
        raise RuntimeError(f"the second ingestion did something: {done.stderr}")
    seconds, found = done.stdout.split()
    if int(found) != documents:
        raise RuntimeError(f"{found} documents, not {documents}")
    return float(seconds)

"""Many pages are ingested: how fast, in how much memory, and what the second time takes."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import yaml
from rich.table import Table

from benchmarks.document_qa.memory import PeakMemory
from benchmarks.side import SideProcess, kill_all
from benchmarks.surroundings import number, spread

_PROJECT = Path(__file__).parents[2]
_PAGES = 20  # of a document
_FEWER = 5  # a first run has so many times fewer documents: memory is not to differ

_AGAIN = """
import logging, sys, time
begun = time.perf_counter()
from pathlib import Path
from datamodules.document_qa.ingestion.ingest import ingest
from datamodules.document_qa.ingestion.settings import IngestionSettings
from datamodules.document_qa.ingestion.sources import find_documents
imported = time.perf_counter()
logging.basicConfig(level=logging.INFO, stream=sys.stderr)
found = ingest(find_documents(Path(sys.argv[1])), Path(sys.argv[2]), IngestionSettings())
print(time.perf_counter() - imported, len(found.documents))
"""


def figures(pages: int, repeats: int) -> dict[str, Any]:
    """{name: a figure for each turn}; bytes, seconds, pages."""
    found: dict[str, Any] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        paths = _write(Path(folder) / "documents", pages)
        for turn in range(repeats):
            fewer = _ingest(paths[: max(1, len(paths) // _FEWER)], Path(folder) / f"fewer-{turn}")
            root = Path(folder) / f"all-{turn}"
            whole = _ingest(paths, root / "ingested")  # where DocumentQuestions keeps them
            again, command = _again(paths[0].parent, root / "ingested", len(paths)), _prepared(paths, root)
            found["pages"].append(whole["pages"])
            found["documents"].append(len(paths))
            found["rate"].append(whole["pages"] / whole["seconds"])
            found["cpu"].append(whole["pages"] / whole["cpu"])
            found["again"].append(again)
            found["command"].append(command)
            for name in ("parent", "worker"):
                found[name].append(whole[name])
                found[f"{name}_of_fewer"].append(fewer[name])
    return dict(found)


def table(found: dict[str, Any]) -> Table:
    """The figures with their spread, beside what they are to be."""
    table = Table(title="ingestion", title_justify="left")
    for heading in ("", "median (range)", "goal"):
        table.add_column(heading, justify="right" if heading.startswith("median") else "left")
    megabytes = {name: [value / 1e6 for value in found[name]] for name in found if name[:6] in ("parent", "worker")}
    documents = found["documents"][0]
    rows = (
        (f"pages, in {documents} PDFs", number(found["pages"][0]), ""),
        ("pages a second", spread(found["rate"]), ""),
        ("pages a CPU second", spread(found["cpu"]), ""),
        ("peak of the process, MB", spread(megabytes["parent"]), "no more than of fewer"),
        (f"  of {_FEWER} times fewer documents, MB", spread(megabytes["parent_of_fewer"]), ""),
        ("peak of a worker, MB", spread(megabytes["worker"]), "no more than of fewer"),
        (f"  of {_FEWER} times fewer documents, MB", spread(megabytes["worker_of_fewer"]), ""),
        ("the second time, seconds", spread(found["again"]), "at most 2"),
        ("a second train.py prepare, seconds", spread(found["command"]), "at most 2"),
    )
    for row in rows:
        table.add_row(*row)
    return table


def _write(folder: Path, pages: int) -> list[Path]:
    from tests.pdf_files import manual

    folder.mkdir()
    return [manual(folder / f"{seed:04d}.pdf", _PAGES, seed) for seed in range(-(-pages // _PAGES))]


def _ingest(paths: Sequence[Path], cache: Path) -> dict[str, float]:
    """In a process of its own, which has nothing else in its memory."""
    side = SideProcess("ingestion", _side, list(paths), cache)
    try:
        with PeakMemory(side.receive()) as memory:
            side.connection.send("go")
            seconds, cpu = side.receive()
        side.process.join()
    finally:
        kill_all(side.process.pid)
    pages = sum(1 for _ in cache.glob("documents/*/pages/*.png"))
    return {"seconds": seconds, "cpu": cpu, "pages": pages, "parent": memory.parent, "worker": memory.worker}


def _side(connection: Connection, paths: Sequence[Path], cache: Path) -> None:
    import resource

    from datamodules.document_qa.ingestion.ingest import ingest
    from datamodules.document_qa.ingestion.settings import IngestionSettings

    connection.send(os.getpid())
    connection.recv()
    begun = time.perf_counter()
    ingest(paths, cache, IngestionSettings())
    seconds = time.perf_counter() - begun
    spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    cpu = sum(one.ru_utime + one.ru_stime for one in spent)
    connection.send((seconds, cpu))


def _again(folder: Path, cache: Path, documents: int) -> float:
    """Seconds that a second time takes, without the imports before it."""
    seconds, found = _run([sys.executable, "-c", _AGAIN, str(folder), str(cache)], os.environ).stdout.split()
    if int(found) != documents:
        raise RuntimeError(f"{found} documents, not {documents}")
    return float(seconds)


def _prepared(paths: Sequence[Path], root: Path) -> float:
    """Seconds that the command takes when it was given before, as a whole."""
    root.mkdir(exist_ok=True)
    asked = [{"id": number, "question": "?", "document": path.name, "answer": "!"} for number, path in enumerate(paths)]
    (root.parent / "questions.jsonl").write_text("".join(json.dumps(one) + "\n" for one in asked))
    train = {"questions": str(root.parent / "questions.jsonl"), "documents": str(paths[0].parent)}
    config = {"data": {"class_path": "DocumentQuestions", "init_args": {"train": train, "root": str(root)}}}
    (root.parent / "config.yaml").write_text(yaml.safe_dump(config))
    configs = [_PROJECT / "configs/document_qa/your_documents.yaml", root.parent / "config.yaml"]
    command = [sys.executable, "train.py", "prepare", *(text for path in configs for text in ("--config", str(path)))]
    environment = {**os.environ, "XDG_CACHE_HOME": str(root.parent / "cache")}
    _run(command, environment)
    begun = time.perf_counter()
    _run(command, environment)
    return time.perf_counter() - begun


def _run(command: Sequence[str], environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command, cwd=_PROJECT, env=environment, capture_output=True, text=True, check=True)
    if "nothing to do" not in done.stderr.lower():
        raise RuntimeError(f"the second time did something: {done.stderr}")
    return done

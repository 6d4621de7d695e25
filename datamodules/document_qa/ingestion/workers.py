"""Processes that each convert one document at a time. One that dies takes nothing but its document with it."""

import multiprocessing
import os
import signal
import traceback
from collections.abc import Callable, Generator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import NamedTuple

from datamodules.document_qa.ingestion.cache import Cache
from datamodules.document_qa.ingestion.conversion import Converted, convert
from datamodules.document_qa.ingestion.settings import IngestionSettings

_PAGES = 1000
"""Pages after which a process is replaced: the libraries keep a little of every page that they have seen."""

Conversion = Callable[[Path, Cache], Converted]


class Died(NamedTuple):
    """A process did not get through a document, for a reason that the next one may not have."""

    reason: str


class _Worker(NamedTuple):
    process: BaseProcess
    connection: Connection


def converted(
    paths: Sequence[Path], folder: Path, settings: IngestionSettings, do: Conversion = convert
) -> Generator[tuple[Path, Converted | Died], None, None]:
    """What becomes of each document, in the order in which they are done. Ends its processes, however it ends.

    Args:
        paths: the documents.
        folder: the cache.
        settings: how they are ingested, and by how many processes.
        do: converts one; a function that a new process can import.

    Raises:
        OSError: the cache cannot be written.
    """
    waiting = list(reversed(paths))
    number = min(settings.workers or cores(), len(waiting))
    idle = [_start(folder, settings, do) for _ in range(number)]
    busy: dict[Connection, tuple[_Worker, Path]] = {}
    pages: dict[Connection, int] = {}
    try:
        while waiting or busy:
            while waiting and idle:
                worker, path = idle.pop(), waiting.pop()
                busy[worker.connection] = worker, path
                try:
                    worker.connection.send(path)
                except OSError:
                    pass  # it is dead; that is read below
            for connection in wait(list(busy)):
                worker, path = busy.pop(connection)  # type: ignore[index]
                result = _receive(worker)
                if isinstance(result, OSError):
                    idle.append(worker)
                    raise result
                made = pages.pop(worker.connection, 0) + (result.pages if isinstance(result, Converted) else _PAGES)
                if made < _PAGES or (isinstance(result, Converted) and not waiting):
                    pages[worker.connection] = made
                    idle.append(worker)
                else:
                    _end(worker)
                    if waiting:
                        idle.append(_start(folder, settings, do))
                yield path, result
    finally:
        for worker in (*idle, *(worker for worker, _ in busy.values())):
            _end(worker)


def cores() -> int:
    """Those that this process may use: of a job on a shared machine, its share."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _start(folder: Path, settings: IngestionSettings, do: Conversion) -> _Worker:
    # Spawned: a fork would share the locks and the threads of this process, which may have used a GPU.
    spawn = multiprocessing.get_context("spawn")
    own, remote = spawn.Pipe()
    process = spawn.Process(target=_work, args=(remote, folder, settings, do), daemon=True)
    process.start()
    remote.close()
    return _Worker(process, own)


def _work(connection: Connection, folder: Path, settings: IngestionSettings, do: Conversion) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of Ctrl-C the parent tells, once
    cache = Cache(folder, settings)
    while True:
        try:
            path = connection.recv()
        except (EOFError, OSError):  # the parent is done, or gone
            return
        try:
            connection.send(do(path, cache))
        except BrokenPipeError:
            return
        except OSError as error:  # the cache cannot be written: nor can it for other documents
            connection.send(error)
        except Exception as error:  # noqa: BLE001  (a damaged file can make a library raise almost anything)
            place = traceback.extract_tb(error.__traceback__)[-1]
            connection.send(Died(f"{type(error).__name__} at {place.filename}:{place.lineno}: {error}"))


def _receive(worker: _Worker) -> Converted | Died | OSError:
    try:
        result: Converted | Died | OSError = worker.connection.recv()
        return result
    except (EOFError, OSError):
        worker.process.join()
    code = worker.process.exitcode or 0
    ended = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
    return Died(f"the process that read it {ended}: it is damaged, or needs more memory than there is")


def _end(worker: _Worker) -> None:
    worker.connection.close()  # where it waits it ends by itself
    worker.process.terminate()
    worker.process.join()
    worker.process.close()

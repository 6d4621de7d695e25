"""Runs worker processes that each convert one document at a time; a crash affects its document only."""

import errno
import importlib
import multiprocessing
import signal
import sys
import traceback
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import NamedTuple

from datamodules.document_qa.ingestion.convert import ConversionResult, convert_document
from datamodules.document_qa.ingestion.document_cache import DocumentCache
from datamodules.document_qa.ingestion.settings import IngestionSettings
from engine.system.cpu_count import available_cpus

_PAGES = 1000
"""Pages after which a worker is replaced, as the libraries leak some memory per page."""

Conversion = Callable[[Path, DocumentCache], ConversionResult]


class WorkerFailure(NamedTuple):
    """Yielded in place of a result if a worker failed at a document."""

    reason: str
    died: bool  # the process died or lacked memory, which says nothing about the document; otherwise its reader raised


class _Worker(NamedTuple):
    process: BaseProcess
    connection: Connection


def convert_documents(
    paths: Sequence[Path], folder: Path, settings: IngestionSettings, conversion: Conversion = convert_document
) -> Generator[tuple[Path, ConversionResult | WorkerFailure], None, None]:
    """Convert documents and yield (path, result) as they finish. Ends all workers on exit.

    Args:
        paths: the documents.
        folder: cache folder.
        settings: settings of the ingestion, and the number of workers.
        conversion: converts a document; an importable function.

    Raises:
        OSError: the cache cannot be written.
    """
    with closing(convert_with_timeout(paths, folder, settings, conversion=conversion)) as steps:
        yield from (step for step in steps if step is not None)


def convert_with_timeout(
    paths: Sequence[Path],
    folder: Path,
    settings: IngestionSettings,
    seconds: float | None = None,
    conversion: Conversion = convert_document,
    memory: int | None = None,
) -> Generator[tuple[Path, ConversionResult | WorkerFailure] | None, None, None]:
    """Convert documents as `convert_documents` does; also yield None whenever no document has finished for `seconds`.

    Args:
        paths: see `convert_documents`.
        folder: see `convert_documents`.
        settings: see `convert_documents`.
        seconds: time after which None is yielded; None waits without end.
        conversion: see `convert_documents`.
        memory: bytes that a worker may allocate for documents, on Linux; more is a WorkerFailure. None: no limit.
    """
    # `pop` takes from the end, so the documents are converted in their order.
    waiting = list(reversed(paths))
    number = min(settings.workers or default_workers(), len(waiting))
    idle = [_start(folder, settings, conversion, memory) for _ in range(number)]
    busy: dict[Connection, tuple[_Worker, Path]] = {}
    pages: dict[Connection, int] = {}
    try:
        while waiting or busy:
            while waiting and idle:
                worker, path = idle.pop(), waiting.pop()
                busy[worker.connection] = worker, path
                with suppress(OSError):  # the worker is dead, which _receive reports
                    worker.connection.send(path)
            finished = wait(list(busy), seconds)
            if not finished:
                yield None
            for connection in finished:
                worker, path = busy.pop(connection)  # type: ignore[call-overload]  # `wait` returns some of its arguments
                result = _receive(worker)
                if isinstance(result, OSError):
                    # So that `finally` ends the worker.
                    idle.append(worker)
                    raise result
                converted_pages = pages.pop(worker.connection, 0) + (
                    result.pages if isinstance(result, ConversionResult) else _PAGES
                )
                if converted_pages < _PAGES or (isinstance(result, ConversionResult) and not waiting):
                    pages[worker.connection] = converted_pages
                    idle.append(worker)
                else:
                    _end(worker)
                    if waiting:
                        idle.append(_start(folder, settings, conversion, memory))
                yield path, result
    finally:
        for worker in (*idle, *(worker for worker, _ in busy.values())):
            _end(worker)


def default_workers() -> int:
    """Return one worker for each CPU that this process may use, a control group's quota included."""
    return max(1, int(available_cpus()))


def _start(folder: Path, settings: IngestionSettings, conversion: Conversion, memory: int | None) -> _Worker:
    # Spawned, as a fork would copy the locks and threads of this process, which may have used a GPU.
    spawn = multiprocessing.get_context("spawn")
    connection, remote = spawn.Pipe()
    process = spawn.Process(target=_work, args=(remote, folder, settings, conversion, memory), daemon=True)
    process.start()
    # Only the worker has this end now, so reading from it fails as soon as the worker is dead.
    remote.close()
    return _Worker(process, connection)


def _work(
    connection: Connection, folder: Path, settings: IngestionSettings, conversion: Conversion, memory: int | None
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process handles Ctrl-C
    if memory is not None and sys.platform == "linux":
        _limit_memory(memory)
    cache = DocumentCache(folder, settings)
    while True:
        try:
            path = connection.recv()
        except (EOFError, OSError):  # the parent process is done, or has died
            return
        try:
            connection.send(attempt(conversion, path, cache))
        except BrokenPipeError:
            return


def attempt(conversion: Conversion, path: Path, cache: DocumentCache) -> ConversionResult | WorkerFailure | OSError:
    """Convert a document in this process; return an OSError if the cache cannot be written."""
    try:
        return conversion(path, cache)
    except OSError as error:  # the cache cannot be written, so no document can be converted
        return WorkerFailure(str(error), died=True) if error.errno == errno.ENOMEM else error
    except Exception as error:  # noqa: BLE001  (a corrupt file can make a library raise almost anything)
        frame = traceback.extract_tb(error.__traceback__)[-1]
        reason = f"{type(error).__name__} at {frame.filename}:{frame.lineno}: {error}"
        return WorkerFailure(reason, died=isinstance(error, MemoryError))


def _limit_memory(memory: int) -> None:
    """Let this process allocate some bytes more than it has: its private, writable memory (RLIMIT_DATA of Linux).

    The address space (RLIMIT_AS) would also count what libraries reserve and never use: gigabytes with many cores.
    """
    import resource

    importlib.import_module("numpy")  # allocates buffers for each core, which are no part of a document
    # The sixth number is the size of data and stack, in pages.
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[5])
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    # A limit of -1 means that there is none.
    limits = [pages * resource.getpagesize() + memory, *(limit for limit in (soft, hard) if limit >= 0)]
    resource.setrlimit(resource.RLIMIT_DATA, (min(limits), hard))


def _receive(worker: _Worker) -> ConversionResult | WorkerFailure | OSError:
    try:
        result: ConversionResult | WorkerFailure | OSError = worker.connection.recv()
        return result
    except (EOFError, OSError):
        worker.process.join()
    code = worker.process.exitcode or 0
    ended = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
    reason = f"its worker process {ended}: the document is corrupt, or needs more memory than available"
    return WorkerFailure(reason, died=True)


def _end(worker: _Worker) -> None:
    worker.connection.close()  # a waiting worker ends by itself
    worker.process.terminate()
    worker.process.join()
    worker.process.close()

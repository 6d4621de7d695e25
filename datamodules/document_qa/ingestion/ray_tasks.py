"""Converts documents in tasks of Ray, on this machine or a cluster; the counterpart of worker_pool.py.

Documents are independent, so tasks of Ray's core are enough. All machines need the same installation, and must see
documents and cache under the same absolute paths (a shared file system).
"""

import logging
import os
import signal
import socket
import threading
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from datamodules.document_qa.ingestion.convert import ConversionResult, convert_document
from datamodules.document_qa.ingestion.document_cache import DocumentCache
from datamodules.document_qa.ingestion.settings import IngestionSettings
from datamodules.document_qa.ingestion.worker_pool import Conversion, WorkerFailure, attempt, default_workers
from engine.system.extras import require_extras

_DOCUMENTS = 10
"""Documents after which a worker process is replaced, as the libraries leak some memory per page."""

_OBJECT_STORE = 100 * 2**20
"""Bytes of shared memory for results, which are small; by default Ray takes a third of the memory."""

_REACHED = 10.0  # seconds in which a cluster must accept a connection

_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # without it, Ray warns of a change that concerns GPUs
}
_LOCAL = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
"""On Linux, too, this makes Ray listen on localhost instead of all network interfaces."""


def require_ray() -> None:
    """Check that Ray is installed.

    Raises:
        MissingPackagesError: it is not, with the command that installs it.
    """
    require_extras({"ray": "data.init_args.ingestion.engine ray"})


def convert_with_ray(
    paths: Sequence[Path], folder: Path, settings: IngestionSettings, conversion: Conversion = convert_document
) -> Generator[tuple[Path, ConversionResult | WorkerFailure], None, None]:
    """Convert documents and yield (path, result) as they finish. Ends its tasks, and a Ray that it started, on exit.

    Args:
        paths: the documents.
        folder: cache folder.
        settings: settings of the ingestion, the address of a cluster and the number of workers.
        conversion: converts a document; an importable function.

    Raises:
        OSError: the cache cannot be written.
        ValueError: the cluster cannot be reached, or a machine of it lacks this project.
    """
    with _connect(settings, len(paths)) as ray:
        # A task is not repeated: a document at which a process died is tried again by the next `prepare`.
        task = ray.remote(num_cpus=1, max_retries=0, max_calls=_DOCUMENTS)(_attempt)
        # `pop` takes from the end, so the documents are converted in their order.
        waiting = list(reversed(paths))
        pending: dict[Any, Path] = {}
        try:
            while waiting or pending:
                while waiting and len(pending) < _task_limit(ray, settings):
                    path = waiting.pop()
                    pending[task.remote(path.absolute(), folder.absolute(), settings, conversion)] = path
                finished = ray.wait(list(pending), num_returns=1)[0][0]
                path = pending.pop(finished)
                yield path, _result(ray, finished, path)
        finally:
            for reference in pending:
                ray.cancel(reference, force=True)


def _attempt(
    path: Path, folder: Path, settings: IngestionSettings, conversion: Conversion
) -> ConversionResult | WorkerFailure | OSError:
    return attempt(conversion, path, DocumentCache(folder, settings))


def _task_limit(ray: Any, settings: IngestionSettings) -> int:
    """Return the largest number of unfinished tasks: two per CPU, so none waits for this process. CPUs may join."""
    return settings.workers or max(2, 2 * int(ray.cluster_resources().get("CPU", 0)))


def _result(ray: Any, reference: Any, path: Path) -> ConversionResult | WorkerFailure:
    try:
        result: ConversionResult | WorkerFailure | OSError = ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        raise ValueError(
            f"{path}: Ray could not call the conversion ({str(error).strip().splitlines()[-1]}); all machines of the "
            "cluster need this project, with the same versions of Python and of Ray, under the same path"
        ) from error
    except ray.exceptions.RayError as error:
        kind = type(error).__name__
        reason = f"its worker process died ({kind}): the document is corrupt, or needs more memory than available"
        return WorkerFailure(reason, died=True)
    if isinstance(result, OSError):
        raise result
    return result


@contextmanager
def _connect(settings: IngestionSettings, documents: int) -> Iterator[Any]:
    """Yield the module `ray`, connected to a cluster; a connection that exists is used and kept."""
    address = settings.ray_address or os.environ.get("RAY_ADDRESS") or "local"
    for name, value in {**_QUIET, **(_LOCAL if address == "local" else {})}.items():
        os.environ.setdefault(name, value)
    import ray  # reads the environment

    if ray.is_initialized():
        yield ray
        return
    on_terminate = signal.getsignal(signal.SIGTERM)  # ray.init replaces it
    # Ray keeps its logs indefinitely, and its processes end with this process, however it ends.
    with TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:
        try:
            if address == "local":
                ray.init(
                    "local",
                    num_cpus=min(settings.workers or default_workers(), documents),
                    include_dashboard=False,
                    object_store_memory=_OBJECT_STORE,
                    log_to_driver=False,
                    logging_level=logging.ERROR,
                    _temp_dir=folder,
                )
            else:
                _join(ray, address)
            yield ray
        finally:
            ray.shutdown()
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, on_terminate)


def _join(ray: Any, address: str) -> None:
    """Connect to a running cluster."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    try:
        if port.isdigit():  # Ray itself would try for minutes
            socket.create_connection((host.strip("[]"), int(port)), _REACHED).close()
        ray.init(address, logging_level=logging.ERROR)
    except (OSError, RuntimeError) as error:
        raise ValueError(
            f"found no Ray cluster at {address} ({error}), the address in data.init_args.ingestion.ray_address or "
            "RAY_ADDRESS; start it with `ray start`, or set another address"
        ) from error

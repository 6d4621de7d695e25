"""Loads the batches of a run: skips bad samples, measures waiting time, names the batch that failed, ends streams."""

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from torch.utils.data import DataLoader, Dataset, Sampler, default_convert, get_worker_info

from engine.data.errors import BadSampleError
from engine.data.sample_loading import SkippedSample, load_batch_skipping_bad
from engine.data.samplers import MicroBatchRequest
from engine.data.shared_memory import free_bytes, move_to_shared_memory, shortage_message
from engine.data.stream import StreamBatch, StreamBatches
from engine.data.worker_process import Workers
from engine.io.name_list import join_names
from engine.lightning_internals.processes import worker_processes

_MAX_NAMED = 32  # samples named in a message

log = logging.getLogger("lockstep")


class LoadingError(RuntimeError):
    """A micro-batch could not be loaded. The message names the batch and its samples."""


class BadBatchError(LoadingError, ValueError):
    """A micro-batch with a bad sample. The message suffices, without a traceback."""


class LoadedBatch(NamedTuple):
    """A micro-batch on its way from the data set to the training process."""

    batch: Any

    skipped: tuple[SkippedSample, ...] = ()
    """Samples that were requested and are not in the batch."""

    size: int = 0
    """Bytes in shared memory; 0 without workers."""


class SkipBadSamples(Dataset[LoadedBatch]):
    """Dataset wrapper that skips bad samples and moves batches of a worker to shared memory.

    Args:
        data: a BatchedDataset or StreamBatches.
        skip_bad: skip bad samples. If False, they raise BadSampleError.
    """

    def __init__(self, data: Any, skip_bad: bool) -> None:
        self.data, self.skip_bad = data, skip_bad

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, request: MicroBatchRequest) -> LoadedBatch:
        if self.skip_bad:
            batch, skipped = load_batch_skipping_bad(self.data.__getitem__, request)
        else:
            batch, skipped = self.data[request], ()
        # In the training process nothing crosses a process boundary.
        if get_worker_info() is None:
            return LoadedBatch(batch, skipped)
        batch = default_convert(batch)  # as the DataLoader does: arrays become tensors, which can be shared
        return LoadedBatch(batch, skipped, move_to_shared_memory(batch))


class PendingSampler(Sampler[MicroBatchRequest]):
    """Sampler that keeps the requests whose batches have not been delivered yet, the oldest first."""

    def __init__(self, sampler: Sampler[MicroBatchRequest]) -> None:
        self.sampler = sampler
        self.pending: deque[MicroBatchRequest] = deque()
        self.delivered = 0

    def __len__(self) -> int:
        return len(self.sampler)  # type: ignore[arg-type]  # of a sized data set

    def __iter__(self) -> Iterator[MicroBatchRequest]:
        # A new iteration: requests of an epoch that ended early are not delivered any more.
        self.pending.clear()
        self.delivered = 0
        for request in self.sampler:
            self.pending.append(request)
            yield request

    def deliver(self) -> MicroBatchRequest:
        """Remove and return the oldest request, whose batch has been delivered."""
        self.delivered += 1
        return self.pending.popleft()

    def of_workers(self, workers: set[int], num_workers: int) -> list[MicroBatchRequest]:
        """Return the pending requests of these workers. A DataLoader assigns requests round-robin."""
        return [
            request
            for number, request in enumerate(self.pending, start=self.delivered)
            if number % num_workers in workers
        ]


class TimedDataLoader(DataLoader[Any]):
    """DataLoader that measures how long the training waits for batches.

    Attributes:
        waited: seconds that the training has waited since the start.
        kind: what messages call a batch.
        epoch_ended: for a stream, called for each global batch with its number of records; returns whether the epoch
            ended before it.
        skipped: samples that were skipped in the current batch, see `next_skipped`.
        workers: the worker processes, if there are any.
    """

    waited = 0.0
    kind = "batch"
    epoch_ended: Callable[[MicroBatchRequest, int], bool] | None = None
    skipped: tuple[SkippedSample, ...] = ()
    workers: Workers | None = None

    sampler: PendingSampler

    _batches: Any = None  # torch's iterator
    _skipped: Any = ()  # deque: skipped samples of each delivered batch on which work has not begun
    _free_memory: int | None = None  # bytes of shared memory, measured before the first batch

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]  # Lightning needs no more than an iterator.
        # A generator, because Lightning makes iterators that it never uses. Only the first `next` begins an epoch.
        self._skipped = deque()
        if self.workers is not None and (self._batches is None or not self.persistent_workers):
            self.workers.prepare_start()
            self._free_memory = free_bytes()
        in_process = not self.num_workers and not self.pin_memory
        # torch's iterator starts workers and pins memory. A loader that needs neither does without the iterator.
        batches = self._batches = self._load_in_process() if in_process else super().__iter__()
        while True:
            start = time.perf_counter()
            try:
                batch = self._next(batches)
            except StopIteration:
                return
            self.waited += time.perf_counter() - start
            yield batch

    def next_skipped(self) -> tuple[SkippedSample, ...]:
        """Return the samples that were skipped in the next batch. Call it once when work on a batch begins.

        Lightning holds batches ahead, so the batch on which work begins is not the batch that was loaded last.
        """
        self.skipped = self._skipped.popleft() if self._skipped else ()
        return self.skipped

    def lost_batches(self) -> str:
        """Describe the batches that dead workers were loading. Empty if all workers are alive."""
        workers = worker_processes(self._batches)
        # The exit code of a living worker is None, of a worker that has finished 0.
        dead = {number for number, worker in enumerate(workers) if worker.exitcode}
        requests = self.sampler.of_workers(dead, len(workers)) if dead else []
        return self._describe(requests, dead) if requests else ""

    def state_dict(self) -> dict[str, Any]:
        """Return an empty state: the data module restores the sampler.

        Lightning assumes that a loader without this method cannot resume within an epoch, and warns.
        """
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Ignore the empty state."""

    def _load_in_process(self) -> Iterator[Any]:
        """Yield the batches as torch's iterator does, which takes longer than a small batch in memory."""
        for request in self.sampler:
            yield self.collate_fn(self.dataset[request])

    def _next(self, batches: Iterator[Any]) -> Any:
        try:
            batch = next(batches)
        except StopIteration:
            raise
        except Exception as error:
            raise self._loading_error(error) from error
        request = self.sampler.deliver()
        if isinstance(batch, LoadedBatch):
            # A queue, because workers load ahead: these samples belong to a batch that is trained later.
            self._skipped.append(tuple(batch.skipped))
            self._check_shared_memory(batch.size)
            batch = batch.batch
        if not isinstance(batch, StreamBatch):
            return batch
        if self.epoch_ended is not None and self.epoch_ended(request, batch.records):
            raise StopIteration
        return batch.batch

    def _loading_error(self, error: Exception) -> LoadingError:
        try:
            batches = self.lost_batches() or self._first_pending()
        except RuntimeError as worker_error:  # PyTorch raises it for a dead worker from a signal handler, at any line
            error, batches = worker_error, self.lost_batches() or self._first_pending()
        text = f"{type(error).__name__}: {error}".strip()
        # The text of a worker's exception is its whole traceback, which the exception chain shows too.
        reason = text.splitlines()[-1] if "in DataLoader worker process" in text else text
        if isinstance(error, (ConnectionError, EOFError)) and self.lost_batches():  # died while it sent a batch
            reason = f"DataLoader worker exited unexpectedly ({reason})"
        kind = BadBatchError if isinstance(error, BadSampleError) else LoadingError
        return kind(f"loading {batches} failed: {reason}")

    def _check_shared_memory(self, size: int) -> None:
        """Warn at the first batch if /dev/shm is too small for all batches that may be in flight."""
        if self._free_memory is not None and self.workers is not None and size:
            text = shortage_message(
                size, self.num_workers, self.workers.local_world_size, self._free_memory, self.prefetch_factor
            )
            self._free_memory = None
            if text is not None:
                log.warning("%s", text)

    def _first_pending(self) -> str:
        """Describe the batch that the training waits for."""
        requests = list(self.sampler.pending)[:1]
        workers = {self.sampler.delivered % self.num_workers} if self.num_workers and requests else set()
        return self._describe(requests, workers)

    def _describe(self, requests: list[MicroBatchRequest], workers: set[int]) -> str:
        """Return e.g. `global batch 17 of epoch 2 (samples 5, 91), at sample 91`. All numbers count from 0."""
        data = self.dataset.data if isinstance(self.dataset, SkipBadSamples) else self.dataset
        unit = "position" if isinstance(data, StreamBatches) else "sample"
        positions = self.workers.last_positions(sorted(workers)) if self.workers is not None else []
        positions = [position for position in positions if any(position in request.indices for request in requests)]
        if positions:
            # A worker loads one batch at a time: with its position known, its other requests were not begun.
            requests = [request for request in requests if any(position in request.indices for position in positions)]
        batches = [
            f"{self.kind} {request.step_in_epoch} of epoch {request.epoch} ({unit}s {_names(request)})"
            for request in requests
        ]
        return (" or ".join(batches) or f"a {self.kind}") + "".join(f", at {unit} {number}" for number in positions)


def _names(request: MicroBatchRequest) -> str:
    return join_names(request.indices.tolist(), _MAX_NAMED)

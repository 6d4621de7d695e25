"""Loading as the training sees it: how long it waited, what was being loaded when it failed, where a stream ends."""

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from torch.utils.data import DataLoader, Sampler

from engine.bad_samples import LeftOut
from engine.reading import Loaded, Reader
from engine.sampling import Draw
from engine.shared_memory import free_bytes, too_little
from engine.streaming import StreamBatches, Streamed
from engine.workers import Workers

_NAMED = 32  # samples named in a message

log = logging.getLogger("lockstep")


class LoadingError(RuntimeError):
    """A micro-batch could not be loaded; says which one."""


class Pending(Sampler[Draw]):
    """A sampler that remembers what was asked for and has not come yet, the oldest draw first."""

    def __init__(self, sampler: Sampler[Draw]) -> None:
        self.sampler = sampler
        self.draws: deque[Draw] = deque()
        self.delivered = 0

    def __len__(self) -> int:
        return len(self.sampler)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Draw]:
        self.draws.clear()
        self.delivered = 0
        for draw in self.sampler:
            self.draws.append(draw)
            yield draw

    def deliver(self) -> Draw:
        """The oldest draw, which has come."""
        self.delivered += 1
        return self.draws.popleft()

    def of_workers(self, workers: set[int], num_workers: int) -> list[Draw]:
        """The draws that these workers were to load; a DataLoader deals them out in turn."""
        return [d for turn, d in enumerate(self.draws, start=self.delivered) if turn % num_workers in workers]


class MeasuredLoader(DataLoader):
    """A DataLoader that knows how long it kept the training waiting (`waited`, seconds since the start)."""

    waited = 0.0
    kind = "batch"
    """What the loader's batches are called in messages."""

    ends: Callable[[Draw, int], bool] | None = None
    """Asked for each global batch of a stream, with the number of its records: whether the epoch has ended before."""

    left_out: tuple[LeftOut, ...] = ()
    """Samples that were left out of the batch that is being worked on, see `left_out_of_next`."""

    started: Workers | None = None
    """Its workers, if it has any."""

    _loading: Any = None
    _left_out: Any = ()  # of the batches that were delivered and not yet begun, a deque
    _free: int | None = None  # of shared memory, before the first batch

    def __iter__(self) -> Iterator[Any]:
        # A generator: Lightning makes iterators that it never uses; only the first batch asked for begins an epoch.
        self._left_out = deque()
        if self.started is not None and self._loading is None:
            self.started.begin()
            self._free = free_bytes()
        batches = self._loading = super().__iter__()
        while True:
            start = time.perf_counter()
            try:
                batch = self._next(batches)
            except StopIteration:
                return
            self.waited += time.perf_counter() - start
            yield batch

    def _next(self, batches: Iterator[Any]) -> Any:
        try:
            batch = next(batches)
        except StopIteration:
            raise
        except Exception as error:
            raise self._told(error) from error
        draw = self.sampler.deliver()
        if isinstance(batch, Loaded):
            self._left_out.append(tuple(batch.left_out))
            self._look_at_room(batch.size)
            batch = batch.batch
        if not isinstance(batch, Streamed):
            return batch
        if self.ends is not None and self.ends(draw, batch.count):
            raise StopIteration
        return batch.batch

    def _told(self, error: Exception) -> LoadingError:
        try:
            place = self.lost() or self._first_pending()
        except RuntimeError as news:  # PyTorch tells of a dead worker from a signal's handler, whatever runs then
            error, place = news, self.lost() or self._first_pending()
        text = f"{type(error).__name__}: {error}".strip()
        # Of a worker's exception the text is its whole traceback, which the chain of exceptions shows as well.
        reason = text.splitlines()[-1] if "in DataLoader worker process" in text else text
        if isinstance(error, (ConnectionError, EOFError)) and self.lost():  # it died while it handed over a batch
            reason = f"DataLoader worker exited unexpectedly ({reason})"
        return LoadingError(f"loading {place} failed: {reason}")

    def left_out_of_next(self) -> tuple[LeftOut, ...]:
        """To be called once for each batch, when work on it begins: the samples that were left out of it.

        It is behind the loading by as many batches as Lightning holds ahead.
        """
        self.left_out = self._left_out.popleft() if self._left_out else ()
        return self.left_out

    def _look_at_room(self, size: int) -> None:
        """With the first batch, whether there is room for as many as may be under way."""
        if self._free is not None and size:
            text = too_little(size, self.num_workers, self.started.processes, self._free)
            self._free = None
            if text is not None:
                log.warning("WARNING: %s", text)

    def lost(self) -> str:
        """What the workers that have died were loading; empty when all are alive."""
        workers = getattr(self._loading, "_workers", [])
        dead = {number for number, worker in enumerate(workers) if worker.exitcode}
        draws = self.sampler.of_workers(dead, len(workers)) if dead else []
        return self._place(draws, dead) if draws else ""

    def _first_pending(self) -> str:
        """What the training waits for: a batch that could not be loaded, or did not come in time."""
        draws = list(self.sampler.draws)[:1]
        return self._place(draws, {self.sampler.delivered % self.num_workers} if self.num_workers and draws else set())

    def _place(self, draws: list[Draw], workers: set[int]) -> str:
        """`global batch 17 of epoch 2 (samples 5, 91), at sample 91`, or several of them; counted from 0."""
        data = self.dataset.data if isinstance(self.dataset, Reader) else self.dataset
        what = "position" if isinstance(data, StreamBatches) else "sample"
        at = self.started.places(sorted(workers)) if self.started is not None else []
        at = [place for place in at if any(place in draw.indices for draw in draws)]
        # Where it is known which sample a worker was at, its other batches did not come to their turn.
        draws = [draw for draw in draws if any(place in draw.indices for place in at)] if at else draws
        places = [f"{self.kind} {draw.number} of epoch {draw.epoch} ({what}s {_names(draw)})" for draw in draws]
        return (" or ".join(places) or f"a {self.kind}") + "".join(f", at {what} {place}" for place in at)

    def state_dict(self) -> dict[str, Any]:
        """Nothing: the sampler starts where the data module's state says. Having it tells Lightning we can resume."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """See `state_dict`."""


def _names(draw: Draw) -> str:
    names = ", ".join(map(str, draw.indices[:_NAMED].tolist()))
    return names if len(draw.indices) <= _NAMED else f"{names} and {len(draw.indices) - _NAMED} more"

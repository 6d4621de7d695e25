"""Loading as the training sees it: how long it waited, what was being loaded when it failed, where a stream ends."""

import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from torch.utils.data import DataLoader, Sampler

from engine.sampling import Draw
from engine.streaming import StreamBatches, Streamed

_NAMED = 32  # samples named in a message


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

    _loading: Any = None

    def __iter__(self) -> Iterator[Any]:
        # A generator: Lightning makes iterators that it never uses; only the first batch asked for begins an epoch.
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
            place = self.lost() or self._place(list(self.sampler.draws)[:1])
            text = f"{type(error).__name__}: {error}".strip()
            # Of a worker's exception the text is its whole traceback, which the chain of exceptions shows as well.
            reason = text.splitlines()[-1] if "in DataLoader worker process" in text else text
            raise LoadingError(f"loading {place} failed: {reason}") from error
        draw = self.sampler.deliver()
        if not isinstance(batch, Streamed):
            return batch
        if self.ends is not None and self.ends(draw, batch.count):
            raise StopIteration
        return batch.batch

    def lost(self) -> str:
        """What the workers that have died were loading; empty when all are alive."""
        workers = getattr(self._loading, "_workers", [])
        dead = {number for number, worker in enumerate(workers) if worker.exitcode}
        draws = self.sampler.of_workers(dead, len(workers)) if dead else []
        return self._place(draws) if draws else ""

    def _place(self, draws: list[Draw]) -> str:
        """`global batch 17 of epoch 2 (samples 5, 91)`, or several of them; counted from 0."""
        what = "positions" if isinstance(self.dataset, StreamBatches) else "samples"
        places = [f"{self.kind} {draw.number} of epoch {draw.epoch} ({what} {_names(draw)})" for draw in draws]
        return " or ".join(places) or f"a {self.kind}"

    def state_dict(self) -> dict[str, Any]:
        """Nothing: the sampler starts where the data module's state says. Having it tells Lightning we can resume."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """See `state_dict`."""


def _names(draw: Draw) -> str:
    names = ", ".join(map(str, draw.indices[:_NAMED].tolist()))
    return names if len(draw.indices) <= _NAMED else f"{names} and {len(draw.indices) - _NAMED} more"

"""Lets many visitors use one model: one answer at a time, in the order of the questions, in one thread."""

import asyncio
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from typing import TypeVar

import torch

T = TypeVar("T")

_END = object()


class QueueFullError(RuntimeError):
    """Too many visitors wait already."""


class ModelQueue:
    """Runs functions that use the model.

    Args:
        context: returns the context in which every call of the model runs, such as autocast.
        waiting: largest number of visitors that wait.
    """

    def __init__(self, context: Callable[[], AbstractContextManager[None]], waiting: int = 16) -> None:
        self._context, self._max_waiting = context, waiting
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="model")
        self._turn = asyncio.Lock()  # serves waiting visitors in their order
        self._waiting = 0

    @property
    def ahead(self) -> int:
        """Number of visitors that are served before a new visitor."""
        return self._waiting + self._turn.locked()

    async def stream(self, start: Callable[[], Iterator[T]]) -> AsyncIterator[T]:
        """Yield what an iterator yields, whose every step runs in the model's thread.

        Raises:
            QueueFullError: too many wait already.
        """
        if self._waiting >= self._max_waiting:
            raise QueueFullError(f"{self._waiting} questions wait already; ask again in a minute")
        self._waiting += 1
        try:
            await self._turn.acquire()
        finally:
            self._waiting -= 1
        iterator: Iterator[T] | None = None
        try:
            iterator = await self._call(start)
            while (item := await self._call(lambda: next(iterator, _END))) is not _END:
                yield item  # type: ignore[misc]  # it is not the sentinel
        finally:
            # The visitor has left: a step that runs ends first, because `close` waits in the same thread.
            if isinstance(iterator, Generator):
                with suppress(RuntimeError):  # the queue is closed
                    self._thread.submit(iterator.close)
            self._turn.release()

    async def call(self, function: Callable[[], T]) -> T:
        """Return the value of a function that runs between the steps of an answer, such as a search of titles."""
        return await self._call(function)

    def close(self) -> None:
        """Refuse further calls. One that runs ends with its step."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _call(self, function: Callable[[], T]) -> T:
        def run() -> T:
            with torch.inference_mode(), self._context():
                return function()

        return await asyncio.get_running_loop().run_in_executor(self._thread, run)

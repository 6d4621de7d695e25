"""Sends what it is given from a thread of its own: who trains does not wait for a network."""

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Generic, TypeVar

Letter = TypeVar("Letter")


class Outbox(Generic[Letter]):
    """In order, and at once all that has gathered while the last ones were sent. The first error ends it.

    Args:
        send: takes one letter or more.
        failed: is told of the error, in the thread.
    """

    def __init__(self, send: Callable[[list[Letter]], None], failed: Callable[[Exception], None]) -> None:
        self._send, self._failed = send, failed
        self._waiting: SimpleQueue[Letter | None] = SimpleQueue()
        # A daemon: a server that does not answer must not keep the process.
        self._thread = threading.Thread(target=self._run, name="outbox", daemon=True)
        self._thread.start()

    def put(self, letter: Letter) -> None:
        self._waiting.put(letter)

    def close(self, patience: float) -> bool:
        """Whether all was sent, or an error told, within so many seconds."""
        self._waiting.put(None)
        self._thread.join(patience)
        return not self._thread.is_alive()

    def _run(self) -> None:
        closed = False
        while not closed:
            letters = [self._waiting.get()]
            while not self._waiting.empty():
                letters.append(self._waiting.get())
            closed = None in letters
            full = [letter for letter in letters if letter is not None]
            try:
                if full:
                    self._send(full)
            except Exception as error:
                self._failed(error)
                return

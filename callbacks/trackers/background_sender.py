"""Sends items from a background thread, so that training does not wait for a network."""

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Generic, TypeVar

Item = TypeVar("Item")


class BackgroundSender(Generic[Item]):
    """Sends queued items in order. Items that are queued during a call of `send` are sent together in the next call.

    The first error ends the thread.

    Args:
        send: sends one item or more. It runs in the thread.
        on_error: receives the error. It runs in the thread.
    """

    def __init__(self, send: Callable[[list[Item]], None], on_error: Callable[[Exception], None]) -> None:
        self._send, self._on_error = send, on_error
        self._queue: SimpleQueue[Item | None] = SimpleQueue()
        # A daemon thread, because a server that does not answer must not keep the process alive.
        self._thread = threading.Thread(target=self._run, name="tracker-sender", daemon=True)
        self._thread.start()

    def put(self, item: Item) -> None:
        """Queue an item and return at once."""
        self._queue.put(item)

    def close(self, timeout: float) -> bool:
        """Send what is queued and end the thread.

        Args:
            timeout: seconds to wait.

        Returns:
            Whether the thread has ended in time, after the last item or after an error.
        """
        self._queue.put(None)
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        closed = False
        while not closed:
            received = [self._queue.get()]
            # Take all that has arrived meanwhile. No other thread takes items, so `get` does not wait.
            while not self._queue.empty():
                received.append(self._queue.get())
            # None is the last item that `close` queues: send what came before it, then end.
            closed = None in received
            items = [item for item in received if item is not None]
            try:
                if items:
                    self._send(items)
            except Exception as error:
                self._on_error(error)
                return

"""The process of one side of a comparison: sides take turns, each in a process of its own with one thread."""

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import get_context, resource_tracker
from types import TracebackType
from typing import Any

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS"), "1")
"""What a process has to find in its environment: torch and pyarrow, MKL, and polars each have threads of their own."""


class SideProcess:
    """A process with one thread, and the connection to it; it first says when it is prepared.

    Ctrl-C does not reach it, whatever it installs, so it has nothing to say to it: whoever started it ends it.

    Args:
        name: of the side, for messages.
        target: called in the process with its end of the connection and `arguments`; all of them picklable.
        daemon: whether it ends with this process, and starts no processes itself.
    """

    def __init__(self, name: str, target: Callable[..., None], *arguments: Any, daemon: bool = False) -> None:
        self.name = name
        spawn = get_context("spawn")
        self.connection, remote = spawn.Pipe()
        self.process = spawn.Process(target=target, args=(remote, *arguments), daemon=daemon)
        resource_tracker.ensure_running()  # started below, it would unblock the signal
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # which the process inherits
        try:
            with one_thread():
                self.process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)  # a Ctrl-C that came meanwhile is heard now
        remote.close()

    def __enter__(self) -> Any:
        try:
            self.receive()  # one after the other: a side that prepares itself would disturb the others' turns
        except BaseException:
            kill_all(self.process.pid)  # as nobody calls __exit__ now
            raise
        return self

    def receive(self) -> Any:
        """What the process sends next.

        Raises:
            RuntimeError: it has ended.
        """
        try:
            return self.connection.recv()
        except EOFError:
            self.process.join()
            raise RuntimeError(
                f"the process of {self.name!r} ended with exit code {self.process.exitcode}; its error is above "
                "(-9 and no error: killed, most likely because memory ran out)"
            ) from None


def kill_all(process: int) -> None:
    """A process and all that it has started: a launcher's own children would outlive it."""
    import psutil  # not there on every machine with a GPU

    with suppress(psutil.NoSuchProcess):
        first = psutil.Process(process)
        for one in (*first.children(recursive=True), first):
            with suppress(psutil.NoSuchProcess):
                one.kill()


class one_thread:
    """Processes started inside have one thread."""

    def __enter__(self) -> None:
        self._before = {name: os.environ[name] for name in ONE_THREAD if name in os.environ}
        os.environ |= ONE_THREAD

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for name in ONE_THREAD:
            os.environ.pop(name, None)
        os.environ |= self._before

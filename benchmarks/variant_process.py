"""Runs each variant of a comparison in a process. Variants alternate; each has its own process with a single thread."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from multiprocessing import get_context, resource_tracker
from pathlib import Path
from types import TracebackType
from typing import Any

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS"), "1")
"""Variables that limit the threads of torch and pyarrow, of MKL and of polars."""


class VariantProcess:
    """Starts a process with a single thread and a connection to it, and waits until the process is prepared.

    The process ignores Ctrl-C, whatever handler it installs, so it prints nothing; its parent ends it.

    Args:
        name: name of the variant, for messages.
        target: called in the process with one side of the connection and `arguments`; all must be picklable.
        daemon: whether the process ends with this process and starts no processes.
    """

    def __init__(self, name: str, target: Callable[..., None], *arguments: Any, daemon: bool = False) -> None:
        self.name = name
        # The child is not forked: it would inherit the memory of this process and its threads' locks.
        spawn = get_context("spawn")
        self.connection, remote = spawn.Pipe()
        self.process = spawn.Process(target=target, args=(remote, *arguments), daemon=daemon)
        resource_tracker.ensure_running()  # a thread started below would unblock the signal
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # the process inherits the mask
        try:
            try:
                with one_thread():
                    self.process.start()
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)  # delivers a Ctrl-C that arrived meanwhile
        except BaseException:
            if self.process.pid is not None:  # nobody else knows it, and this process would wait for it at its end
                kill_all(self.process.pid)
            raise
        # The child has the only open end now, so its death ends `recv` with EOFError instead of a wait forever.
        remote.close()
        assert self.process.pid is not None  # it has been started
        self.pid = self.process.pid

    def __enter__(self) -> Any:
        try:
            self.receive()  # variants prepare in sequence, because a preparation would disturb the turns of the others
        except BaseException:
            kill_all(self.pid)  # `__exit__` is not called after an error here
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        kill_all(self.pid)
        self.process.join()
        self.connection.close()

    def receive(self) -> Any:
        """Return the next message of the process.

        Raises:
            RuntimeError: the process has ended.
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
    """Kill a process and all its descendants, because children of a launcher would outlive it."""
    import psutil  # not installed on every machine with a GPU

    with suppress(psutil.NoSuchProcess):
        first = psutil.Process(process)
        for one in (*first.children(recursive=True), first):
            with suppress(psutil.NoSuchProcess):
                one.kill()


def run_python(
    arguments: Sequence[str], folder: Path, environment: Mapping[str, str], timeout: float
) -> tuple[int, str, str]:
    """Run a Python command in a folder, and return its exit code, output and errors.

    Raises:
        subprocess.TimeoutExpired: it took more than `timeout` seconds; it and its descendants were killed.
    """
    command = subprocess.Popen(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with command:
        try:
            output, errors = command.communicate(timeout=timeout)
        except BaseException:
            kill_all(command.pid)
            raise
    return command.returncode, output, errors


class one_thread:
    """Limit processes that are started inside to a single thread."""

    def __enter__(self) -> None:
        self._before = {name: os.environ[name] for name in ONE_THREAD if name in os.environ}
        # Libraries read the variables when they are imported, so they must be set before the process starts.
        os.environ |= ONE_THREAD

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for name in ONE_THREAD:
            os.environ.pop(name, None)
        os.environ |= self._before

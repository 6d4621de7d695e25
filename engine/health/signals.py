"""Receives stop signals: SIGTERM, SIGINT and SIGUSR1 only set a flag, which callbacks.health.preemption polls.

A handler that acts in the middle of a step, as Python's own do, finds the ranks in different places: a rank would
save while another waits for its gradients. This module imports nothing heavy, so that the handlers are installed before
anything else is imported: a signal without a handler kills a process that is still importing.
"""

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from engine.health.exit_codes import ExitCode

_DUPLICATE_SECONDS = 2.0
"""A second SIGINT within this time is the same Ctrl-C, sent by the terminal and forwarded by torchrun."""

_FIRST_CTRL_C = b"\nCtrl-C: stopping at the next safe point. Press Ctrl-C again, after 2 s or later, to end at once\n"


class RunStopped(SystemExit):
    """Raised on all ranks at the same point, after the checkpoint is saved, when the run received a stop signal."""

    code: int


class StopSignals:
    """Stop signals that this process has received. There is a single instance: `stop_signals`.

    Attributes:
        received: number of the received signal, 0 if none. Of several signals the largest number counts, so SIGTERM
            takes precedence over Ctrl-C.
    """

    def __init__(self) -> None:
        self.received = 0
        self._previous: dict[int, object] = {}  # handlers by signal number; empty while not installed
        self._first_interrupt = 0.0
        self._has_fork_hook = False

    @contextmanager
    def handlers_installed(self) -> Iterator[None]:
        """Install the handlers in a `with` block. Handlers that were installed before the block remain."""
        is_first = not self._previous
        self.install_handlers()
        try:
            yield
        finally:
            if is_first:
                self.restore_handlers()

    def install_handlers(self) -> None:
        """Install the handlers. Repeated calls, and calls outside the main thread, do nothing."""
        if self._previous or threading.current_thread() is not threading.main_thread():
            return
        self.received, self._first_interrupt = 0, 0.0
        names = ("SIGTERM", "SIGINT", "SIGUSR1")
        numbers = [int(getattr(signal, name)) for name in names if hasattr(signal, name)]  # Windows has no SIGUSR1
        # A thread reads the signals from a socket: Python runs handlers only in the main thread, which may be blocked
        # in a collective.
        self._reader, self._writer = socket.socketpair()
        self._writer.setblocking(False)
        threading.Thread(target=self._read, args=(self._reader,), name="stop-signals", daemon=True).start()
        self._previous_wakeup = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        for number in numbers:
            self._previous[number] = signal.signal(number, _do_nothing)
            if hasattr(signal, "siginterrupt"):
                signal.siginterrupt(number, False)  # for libraries that do not expect EINTR
        if hasattr(os, "register_at_fork") and not self._has_fork_hook:
            os.register_at_fork(after_in_child=self._restore_in_child)
            self._has_fork_hook = True

    def restore_handlers(self) -> None:
        """Restore the handlers from before `install_handlers`."""
        if not self._previous:
            return
        signal.set_wakeup_fd(self._previous_wakeup)
        for number, handler in self._previous.items():
            signal.signal(number, handler)  # type: ignore[arg-type]  # as `signal` returned it
        self._previous, self.received = {}, 0
        self._writer.close()

    def _read(self, reader: socket.socket) -> None:
        with reader:
            while numbers := reader.recv(64):
                for number in numbers:
                    if number in self._previous:
                        with suppress(RuntimeError):  # no thread for the message; the flag is set before
                            self._receive(number)

    def _receive(self, number: int) -> None:
        self.received = max(self.received, number)
        if number == signal.SIGINT:
            now = time.monotonic()
            if self._first_interrupt and now - self._first_interrupt > _DUPLICATE_SECONDS:
                os._exit(ExitCode.SIGINT)
            if not self._first_interrupt:
                self._first_interrupt = now
                if os.environ.get("RANK", os.environ.get("LOCAL_RANK", "0")) == "0":
                    # Written by a thread of its own: writing to a pipe without a reader may block forever.
                    threading.Thread(target=_write_stderr, args=(_FIRST_CTRL_C,), daemon=True).start()

    def _restore_in_child(self) -> None:
        """Restore the handlers in a forked process, so that its signals do not reach the training process."""
        if not self._previous:
            return
        signal.set_wakeup_fd(-1)  # the file descriptor is the training process's socket
        self._reader.close()
        self._writer.close()
        for number, handler in self._previous.items():
            signal.signal(number, handler)  # type: ignore[arg-type]  # as `signal` returned it
        self._previous = {}


def ignore_signals_in_worker(worker: int = 0, trainer: int | None = None) -> None:
    """Make a DataLoader worker ignore stop signals that a scheduler or a terminal sends to all processes.

    Torch's workers die of them, and the step that is about to be finished and saved would fail. The worker still ends
    on SIGTERM from the training process.

    Args:
        worker: index of the worker; unused, for DataLoader's `worker_init_fn`.
        trainer: process ID of the training process; None: the parent.
    """
    for name in ("SIGINT", "SIGUSR1"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    if hasattr(signal, "sigwaitinfo"):
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        threading.Thread(target=_exit_on_sigterm_from, args=(trainer or os.getppid(),), daemon=True).start()


def _exit_on_sigterm_from(trainer: int) -> None:
    while signal.sigwaitinfo({signal.SIGTERM}).si_pid != trainer:
        pass
    os._exit(ExitCode.OK)


def _write_stderr(text: bytes) -> None:
    with suppress(OSError):  # in `... 2>&1 | tee log` the same Ctrl-C has ended tee
        os.write(2, text)


def _do_nothing(number: int, frame: FrameType | None) -> None:
    """Ignore the signal here: the wakeup socket has passed it on."""


stop_signals = StopSignals()

"""SIGTERM, SIGINT and SIGUSR1 only set a flag; where it is safe to stop, callbacks.preemption reads it.

Whoever reads a flag in the middle of a step, as Python's own handlers do, finds the processes of a run in different
places: one would save while another waits for its gradients. Imports nothing heavy, so that the flag is there before
anything else is: a signal without a handler kills a process that is still importing.
"""

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

_SAME_CTRL_C = 2.0
"""Seconds in which a second SIGINT is the first one told twice, by the terminal and by torchrun."""

_FIRST_CTRL_C = b"\nCtrl-C: stopping at the next safe point. One more, 2 s from now or later, ends at once\n"


class Stopped(SystemExit):
    """Raised by every process at the same point: the run was told to stop, and what was to be saved is on disk.

    Its code is 143 for SIGTERM and SIGUSR1, 130 for SIGINT, as a shell has it for a process that such a signal ended.
    """


class StopSignals:
    """What this process was told. One for the process: `stop_signals`.

    `received` is the number of the signal that came, 0 if none did; of several the largest, so a SIGTERM counts more
    than a Ctrl-C.
    """

    def __init__(self) -> None:
        self.received = 0
        self._before: dict[int, object] = {}
        self._first_interrupt = 0.0
        self._forks_are_known = False

    @contextmanager
    def listening(self) -> Iterator[None]:
        """`listen`, and back to what was before unless somebody listened already."""
        begun_here = not self._before
        self.listen()
        try:
            yield
        finally:
            if begun_here:
                self.close()

    def listen(self) -> None:
        """From here on the signals only set the flag; safe to repeat. Only the main thread can do this."""
        if self._before or threading.current_thread() is not threading.main_thread():
            return
        self.received, self._first_interrupt = 0, 0.0
        names = ("SIGTERM", "SIGINT", "SIGUSR1")
        numbers = [int(getattr(signal, name)) for name in names if hasattr(signal, name)]  # Windows has no SIGUSR1
        # A thread reads them: Python's handlers have to wait while the main thread waits for another process.
        self._reader, self._writer = socket.socketpair()
        self._writer.setblocking(False)
        threading.Thread(target=self._read, args=(self._reader,), name="stop-signals", daemon=True).start()
        self._wakeup_before = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        for number in numbers:
            self._before[number] = signal.signal(number, _nothing)
            if hasattr(signal, "siginterrupt"):
                signal.siginterrupt(number, False)  # libraries that do not expect EINTR go on as well
        if hasattr(os, "register_at_fork") and not self._forks_are_known:
            os.register_at_fork(after_in_child=self._leave_to_parent)
            self._forks_are_known = True

    def close(self) -> None:
        """The handlers that were there before are back."""
        if not self._before:
            return
        signal.set_wakeup_fd(self._wakeup_before)
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        self._before, self.received = {}, 0
        self._writer.close()

    def _read(self, reader: socket.socket) -> None:
        with reader:
            while numbers := reader.recv(64):
                for number in numbers:
                    if number in self._before:
                        with suppress(RuntimeError):  # no thread to be had; what counts is noted before
                            self._note(number)

    def _note(self, number: int) -> None:
        self.received = max(self.received, number)
        if number == signal.SIGINT:
            now = time.monotonic()
            if self._first_interrupt and now - self._first_interrupt > _SAME_CTRL_C:
                os._exit(130)
            if not self._first_interrupt:
                self._first_interrupt = now
                if os.environ.get("RANK", os.environ.get("LOCAL_RANK", "0")) == "0":
                    # In a thread of its own: a pipe that nobody reads any more would keep this one for ever.
                    threading.Thread(target=_say, args=(_FIRST_CTRL_C,), daemon=True).start()

    def _leave_to_parent(self) -> None:
        """In a forked process the signals mean what they did before, and are not told to the training process."""
        if not self._before:
            return
        signal.set_wakeup_fd(-1)  # it leads to the training process
        self._reader.close()
        self._writer.close()
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        self._before = {}


def outlive_the_step(worker: int = 0, trainer: int | None = None) -> None:
    """For a loader's worker: what a scheduler or a terminal sends to all processes is the training process's affair.

    A worker that died of it, as torch's do, would take the step along that is about to be finished and saved. It still
    ends when the training process says so, or is gone.

    Args:
        worker: its number.
        trainer: the training process; None: the parent.
    """
    for name in ("SIGINT", "SIGUSR1"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    if hasattr(signal, "sigwaitinfo"):
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        threading.Thread(target=_end_at_the_word_of, args=(trainer or os.getppid(),), daemon=True).start()


def _end_at_the_word_of(trainer: int) -> None:
    while signal.sigwaitinfo({signal.SIGTERM}).si_pid != trainer:
        pass
    os._exit(0)


def _say(text: bytes) -> None:
    with suppress(OSError):  # in `... 2>&1 | tee log` the same Ctrl-C has ended tee
        os.write(2, text)


def _nothing(number: int, frame: FrameType | None) -> None:
    """The thread has been told."""


stop_signals = StopSignals()

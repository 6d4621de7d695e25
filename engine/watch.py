"""Notices when a process of a run fails, dies or stands still, and then ends all of them: none waits for ever.

Every second a process publishes a `Pulse` through the store over which the processes found each other. The first
process reads those of all, the others read the first's, so the store serves any number of processes. Whoever sees a
fault writes the verdict; the first one stays, and all read it. The thread that talks with the store may be kept waiting
by a cut link, so another one judges.
"""

import atexit
import faulthandler
import logging
import math
import multiprocessing
import os
import subprocess
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from engine.events import event
from engine.faults import is_consequence
from engine.host_memory import killed_since, oom_kills
from engine.pulse import LEFT, Attendance, Pulse, Verdict
from engine.stacks import all_stacks, main_thread_at, write_fault
from engine.store_line import StoreLine

log = logging.getLogger("lockstep")

GRACE = 5.0
"""Seconds that the main thread has to end by itself, and that a failing process waits until the others know."""


class Watch:
    """The watch of one process.

    The main thread tells what it does: `moves`, `step`, and with `enter` the phase and how long it may stand still.

    Args:
        timeout: seconds without a sign of life after which a process counts as lost; infinite: never.
        folder: of the run; stacks go into its `faults/`.
        on_lost: called by one process of each machine that is left when another process is gone without a word.
    """

    def __init__(self, timeout: float, folder: Path, on_lost: Callable[[], None] = lambda: None) -> None:
        self.timeout, self.folder, self.on_lost = timeout, folder, on_lost
        self.moves, self.step, self.phase, self.patience = 0, 0, "start-up", math.inf
        self.rank, self.local_rank, self.processes = 0, 0, 1
        self.verdict: Verdict | None = None
        self._ending = False  # the main thread is on its way out
        self._line: StoreLine | None = None
        self._over, self._saying, self._said = threading.Event(), threading.Lock(), False
        self._arming = threading.Lock()
        self._now = self._moved = self._answered = 0.0
        self._oom_kills = oom_kills()

    # -- for the main thread -----------------------------------------------------------------------------------------

    def begin(
        self, rank: int = 0, local_rank: int = 0, processes: int = 1, children: Sequence[subprocess.Popen[Any]] = ()
    ) -> None:
        """Starts the threads; with several processes their process group must exist.

        Args:
            children: processes of the run that this one has started and has to answer for.
        """
        self.rank, self.local_rank, self.processes, self._children = rank, local_rank, processes, children
        self._period = min(1.0, self.timeout / 4)
        self._launcher = os.getppid() if "TORCHELASTIC_RUN_ID" in os.environ else None
        if processes > 1:
            self._attendance = Attendance(processes, range(processes) if rank == 0 else (0,), 0.0)
            self._line = StoreLine(self._pulse, rank, processes, self._period)
            self._exits: dict[int, int] = {}
            atexit.register(self._end_children)
        threading.Thread(target=self._judge, name="lockstep-watch", daemon=True).start()

    def enter(self, phase: str, patience: float) -> None:
        """The main thread begins something else, in which it may stand still for `patience` seconds."""
        self.moves += 1
        self.phase = phase
        if patience != self.patience:
            self.patience = patience
            self._arm()  # at once: the next thing may be what keeps the judge from running

    def leave(self, patience: float = math.inf) -> None:
        """Says goodbye. The first process, which may be the store's host, stays until all have said it."""
        self.phase, self.patience = LEFT, math.inf
        if self._line is not None:
            self._line.leave(min(patience, max(self.timeout, 2 * GRACE)))
            faulthandler.cancel_dump_traceback_later()
        self._over.set()

    def settle(self, error: BaseException) -> Verdict:
        """Called with the error that ends the main thread: tells the others, or finds out which fault was the first.

        Returns:
            the first fault.
        """
        self._ending = True
        own = Verdict(self.rank, f"process {self.rank} failed {_at(self.step, self.phase)}: {_summary(error)}")
        if self._line is None:
            self._over.set()
            self.verdict = own
        else:
            if self.timeout < math.inf:  # whatever the way out holds, such as libraries that tidy up
                faulthandler.dump_traceback_later(max(2 * self.timeout, 60), exit=True, file=2)
            if is_consequence(error):
                self._await_cause()
            self.verdict = self._line.report(self.verdict or own, GRACE)
        title = own.text if self.verdict == own else f"{self.verdict.text}; {own.text}"
        self._write(title, "".join(traceback.format_exception(error)))
        if self.verdict != own and _summary(error) not in self.verdict.text:
            self._say()
        if self._line is not None:
            self._line.await_readers(GRACE)
            self._line.close()
        return self.verdict

    def _await_cause(self) -> None:
        """The others may be about to say why; otherwise it is the process that gives no sign of life."""
        assert self._line is not None
        self._line.hears_all = True
        deadline = time.monotonic() + 1.5 * GRACE
        while self.verdict is None and time.monotonic() < deadline:
            time.sleep(0.02)
            self.verdict = self._line.verdict
            silent = self._attendance.silent(self._now, 3.5 * self._period)
            if silent and not self.verdict:
                self.verdict = silent._replace(text=f"{silent.text}; process {self.rank} is at step {self.step}")

    def memory_note(self) -> str:
        """Says so when the kernel has killed a process on this machine, in this container or job, for its memory."""
        return killed_since(self._oom_kills)

    @property
    def still(self) -> float:
        """Seconds since the main thread last told that it gets on; a stopped process's clock stood still as well."""
        return self._now - self._moved

    # -- the judge ---------------------------------------------------------------------------------------------------

    def _pulse(self, number: int) -> Pulse:
        return Pulse(number, self.moves, self.step, self.phase, self.still, self.patience, main_thread_at())

    def _judge(self) -> None:
        last, moves = time.monotonic(), -1
        while not self._over.wait(self._period / 2):
            # A process that was stopped and goes on has not waited meanwhile: its clock stood still with it.
            elapsed = time.monotonic() - last
            last += elapsed
            self._now += min(elapsed, 5 * self._period)
            if self.moves != moves:
                moves, self._moved = self.moves, self._now
            self._listen()
            verdict = self.verdict or self._find()
            if verdict is not None and not self._ending:
                self.verdict = verdict
                self._end(verdict)

    def _listen(self) -> None:
        line = self._line
        if line is None:
            return
        for rank, pulse in line.pulses.items():
            self._attendance.hear(rank, pulse, self._now)
        if self.rank == 0:
            self._attendance.hear(0, self._pulse(int(self._now * 1e6)), self._now)
        if line.number != getattr(self, "_exchanges", None):
            self._exchanges, self._answered = line.number, self._now
        self._arm()

    def _arm(self) -> None:
        """Should code that holds Python's lock keep all threads from running, the process ends all the same."""
        with self._arming:
            limit = max(self.patience, self.timeout) + 4 * GRACE
            if self._line is None or self._ending:
                return
            if limit < math.inf:
                faulthandler.dump_traceback_later(limit, exit=True, file=2)
            else:
                faulthandler.cancel_dump_traceback_later()

    def _find(self) -> Verdict | None:
        line, still, silence = self._line, self.still, self._now - self._answered
        if line is None:
            if still <= self.patience:
                return None
            place = f"{_at(self.step, self.phase)}, in {main_thread_at()}"
            return Verdict(0, f"the process has stood still for {still:.0f} s {place}")
        if line.verdict is not None:
            return line.verdict
        if self._launcher not in (None, os.getppid()):
            return Verdict(-1, f"torchrun, which started process {self.rank}, is gone", lost=True)
        if line.host_is_gone:
            gone = f"nobody listens at {line.address} any more: torchrun's agent or process 0 is gone"
            return Verdict(-1, gone, lost=True)
        if silence > self.timeout:
            gone = f"no answer for {silence:.0f} s from {line.address}, where all processes meet"
            return Verdict(-1, gone, lost=True)
        for rank, child in enumerate(self._children, start=self.rank + 1):
            code = child.poll()
            # What it said before it ended has been read two exchanges later.
            if code and line.number - self._exits.setdefault(rank, line.number) > 1:
                if not self._attendance.has_left(rank):
                    way = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
                    return Verdict(rank, f"process {rank} {way}")
        if self.rank == 0:
            return self._attendance.verdict(self._now, self.timeout, self._period)
        return self._attendance.silent(self._now, self.timeout + 3 * self._period)  # the first one judges first

    def _end(self, verdict: Verdict) -> None:
        faulthandler.dump_traceback_later(4 * GRACE, exit=True, file=2)  # should a lock be held that saying it needs
        self._write(verdict.text, all_stacks())
        if self._line is not None:
            self._line.report(verdict, self._period)
        self._say()
        if self._line is not None and not self._over.wait(GRACE) and self._ending:
            return
        self._end_children(patience=0)
        os._exit(1)

    # -- the end -----------------------------------------------------------------------------------------------------

    def _say(self) -> None:
        """Once in a process, and on the console by one process of a node: the first one that it is not about."""
        assert self.verdict is not None
        with self._saying:
            if self._said:
                return
            self._said = True
        if self.processes == 1 or self.local_rank == int(self.verdict.rank == self.rank - self.local_rank):
            said = "%s; ending (stacks in %s)%s"
            lost = event("process_lost", process=max(self.verdict.rank, 0), error=self.verdict.text)
            log.error(said, self.verdict.text, self.folder / "faults", self.memory_note(), extra=lost)
            if self.verdict.lost:
                self.on_lost()

    def _write(self, title: str, text: str) -> None:
        try:
            write_fault(self.folder, self.rank, title, text)
        except OSError as error:
            log.error("%s\n(could not be written into %s: %s)", text, self.folder / "faults", error)

    def _end_children(self, patience: float = 2 * GRACE) -> None:
        """A failed run leaves no process behind, not even one that is stopped."""
        if self.verdict is None:
            return
        deadline = time.monotonic() + patience
        for child in self._children:
            try:
                child.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait(GRACE)
        for worker in multiprocessing.active_children():
            worker.kill()


def _at(step: int, phase: str) -> str:
    return f"at step {step} ({phase})"


def _summary(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".strip(": ").splitlines()[0]

"""Detects ranks that fail, die or stall, and then ends all ranks of the run, so that none waits forever.

Every rank publishes a `Heartbeat` each second through torch's rendezvous store. Rank 0 reads the heartbeats of all
ranks, the other ranks read rank 0's, so the store's load does not grow with the square of the world size. The rank that
detects a failure reports it to the store. The first report stays, and all ranks read it. The thread that talks to the
store (`HeartbeatClient`) may be blocked by a cut link, so a second thread, the monitor, decides.
"""

import atexit
import faulthandler
import logging
import math
import os
import subprocess
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from engine.distributed.errors import is_full_disk, is_peer_failure
from engine.health.child_ranks import ChildRanks
from engine.health.exit_codes import ExitCode
from engine.health.heartbeat import FINISHED, FailureReport, Heartbeat, HeartbeatTracker, describe_position
from engine.health.stack_dump import dump_all_stacks, main_thread_location, open_stack_dumps, write_stack_dump
from engine.health.store_client import HeartbeatClient
from engine.io.error_line import first_line_with_type
from engine.system.host_memory import oom_kill_message, oom_kills
from engine.telemetry.log_events import event

log = logging.getLogger("lockstep")

GRACE = 5.0
"""Seconds that the main thread has to end by itself, and that a failing rank waits until the other ranks know."""


class ProcessMonitor:
    """Monitor of one rank.

    The main thread reports what it does: it counts `progress`, sets `step`, and calls `enter` for each phase.

    Args:
        timeout: seconds without a heartbeat after which a rank counts as lost; infinite: never.
        folder: run directory; stack dumps are written to its `faults/`.
        on_lost: called on one remaining rank of each node when another rank has vanished.
    """

    def __init__(self, timeout: float, folder: Path, on_lost: Callable[[], None] = lambda: None) -> None:
        self.timeout, self.folder, self.on_lost = timeout, folder, on_lost
        self.progress, self.step, self.phase, self.max_idle = 0, 0, "start-up", math.inf
        self.rank, self.local_rank, self.world_size = 0, 0, 1
        self.failure: FailureReport | None = None
        self._is_ending = False  # the main thread has failed and is ending
        self._client: HeartbeatClient | None = None
        self._stopped = threading.Event()
        self._report_lock, self._is_reported = threading.Lock(), False
        self._timer_lock = threading.Lock()
        self._clock = self._last_progress = self._last_answer = 0.0
        self._exchanges = -1  # with the store, when it last answered
        self._oom_kills = oom_kills()

    # -- called by the main thread -----------------------------------------------------------------------------------

    def start(
        self, rank: int = 0, local_rank: int = 0, world_size: int = 1, children: Sequence[subprocess.Popen[Any]] = ()
    ) -> None:
        """Start the threads. With several ranks the process group must exist.

        Args:
            rank: of this process.
            local_rank: of this process on its node.
            world_size: number of ranks.
            children: ranks that this process has started, in order of rank. They end with it.
        """
        self.rank, self.local_rank, self.world_size = rank, local_rank, world_size
        self._children = ChildRanks(children, rank + 1)
        self._period = min(1.0, self.timeout / 4)
        self._launcher = os.getppid() if "TORCHELASTIC_RUN_ID" in os.environ else None
        if world_size > 1:
            self._tracker = HeartbeatTracker(world_size, range(world_size) if rank == 0 else (0,), 0.0)
            self._client = HeartbeatClient(self._heartbeat, rank, world_size, self._period)
            atexit.register(self._kill_children_of_failed_run)
        threading.Thread(target=self._monitor_loop, name="lockstep-monitor", daemon=True).start()

    def enter(self, phase: str, max_idle: float) -> None:
        """Enter a phase in which the main thread may be idle for `max_idle` seconds."""
        self.progress += 1
        self.phase = phase
        if max_idle != self.max_idle:
            self.max_idle = max_idle
            self._arm_exit_timer()  # now: the next call may hold the GIL, so that the monitor thread cannot run

    def leave(self, timeout: float = math.inf) -> None:
        """Leave the run. Rank 0, which may host the store, waits until all ranks have left."""
        self.phase, self.max_idle = FINISHED, math.inf
        if self._client is not None:
            self._client.leave(min(timeout, max(self.timeout, 2 * GRACE)))
            faulthandler.cancel_dump_traceback_later()
        self._stopped.set()

    def resolve_first_failure(self, error: BaseException, exit_code: int = ExitCode.FAILED) -> FailureReport:
        """Report the error that ends the main thread, and return the first failure of the run, which caused it."""
        self._is_ending = True
        where = describe_position(self.step, self.phase)
        own_failure = FailureReport(
            self.rank, f"rank {self.rank} failed {where}: {first_line_with_type(error)}", exit_code=exit_code
        )
        # A full disk needs no stack dump, and has no space for it. The file is opened before other ranks learn of the
        # failure: rank 0 then removes the directory of a refused start, which opening the file would create again.
        dump = None if is_full_disk(error) else open_stack_dumps(self.folder, self.rank)
        if self._client is None:
            self._stopped.set()
            self.failure = own_failure
        else:
            if self.timeout < math.inf:  # the exit may block, for example in a library's cleanup
                faulthandler.dump_traceback_later(max(2 * self.timeout, 60), exit=True, file=2)
            if is_peer_failure(error):
                self._await_cause()
            self.failure = self._client.report(self.failure or own_failure, GRACE)
        title = own_failure.text if self.failure == own_failure else f"{self.failure.text}; {own_failure.text}"
        if dump is not None:
            write_stack_dump(dump, self.folder, title, "".join(traceback.format_exception(error)))
        if self.failure != own_failure and first_line_with_type(error) not in self.failure.text:
            self._report()
        if self._client is not None:
            self._client.await_readers(GRACE)
            self._client.close()
        return self.failure

    def _await_cause(self) -> None:
        """Wait for the report of the rank that caused an error here; without it, name a rank without heartbeat."""
        assert self._client is not None
        self._client.reads_all = True
        deadline = time.monotonic() + 1.5 * GRACE
        while self.failure is None and time.monotonic() < deadline:
            time.sleep(0.02)
            self.failure = self._client.failure
            silent = self._tracker.find_silent(self._clock, 3.5 * self._period)
            if silent and not self.failure:
                self.failure = silent._replace(text=f"{silent.text}; rank {self.rank} is at step {self.step}")

    def oom_note(self) -> str:
        """Return a note if the kernel has killed a process of this machine, container or job for its memory."""
        return oom_kill_message(self._oom_kills)

    @property
    def idle(self) -> float:
        """Seconds since the main thread last made progress, without the time in which the process was suspended."""
        return self._clock - self._last_progress

    # -- the monitor thread ------------------------------------------------------------------------------------------

    def _heartbeat(self, number: int) -> Heartbeat:
        return Heartbeat(
            number=number, progress=self.progress, step=self.step, phase=self.phase, idle=self.idle,
            max_idle=self.max_idle, location=main_thread_location(),
        )  # fmt: skip

    def _monitor_loop(self) -> None:
        last, progress = time.monotonic(), -1
        while not self._stopped.wait(self._period / 2):
            # A suspended process (SIGSTOP) has not waited for anyone meanwhile, so its clock stops, too.
            elapsed = time.monotonic() - last
            last += elapsed
            self._clock += min(elapsed, 5 * self._period)
            if self.progress != progress:
                progress, self._last_progress = self.progress, self._clock
            self._read_heartbeats()
            failure = self.failure or self._find_failure()
            if failure is not None and not self._is_ending:
                self.failure = failure
                self._terminate(failure)

    def _read_heartbeats(self) -> None:
        if (client := self._client) is None:
            return
        for rank, heartbeat in client.heartbeats.items():
            self._tracker.record(rank, heartbeat, self._clock)
        if self.rank == 0:
            self._tracker.record(0, self._heartbeat(int(self._clock * 1e6)), self._clock)
        if client.exchanges != self._exchanges:
            self._exchanges, self._last_answer = client.exchanges, self._clock
        self._arm_exit_timer()

    def _arm_exit_timer(self) -> None:
        """Make faulthandler end the process if code that holds the GIL keeps the monitor thread from running."""
        with self._timer_lock:
            limit = max(self.max_idle, self.timeout) + 4 * GRACE
            if self._client is None or self._is_ending:
                return
            if limit < math.inf:
                faulthandler.dump_traceback_later(limit, exit=True, file=2)
            else:
                faulthandler.cancel_dump_traceback_later()

    def _find_failure(self) -> FailureReport | None:
        client, idle, silence = self._client, self.idle, self._clock - self._last_answer
        if client is None:
            if idle <= self.max_idle:
                return None
            where = f"{describe_position(self.step, self.phase)}, in {main_thread_location()}"
            return FailureReport(0, f"the process has been stalled for {idle:.0f} s {where}")
        if client.failure is not None:
            return client.failure
        if self._launcher not in (None, os.getppid()):
            return FailureReport(-1, f"torchrun, which started rank {self.rank}, is gone", lost=True)
        if client.host_is_gone:
            refused = f"{client.address} refuses connections: torchrun's agent or rank 0 is gone"
            return FailureReport(-1, refused, lost=True)
        if silence > self.timeout:
            return FailureReport(-1, f"no answer for {silence:.0f} s from the store at {client.address}", lost=True)
        ended = self._children.find_exit(client.exchanges, self._tracker.has_left)
        if ended is not None:
            return ended
        if self.rank == 0:
            return self._tracker.diagnose(self._clock, self.timeout, self._period)
        return self._tracker.find_silent(self._clock, self.timeout + 3 * self._period)  # rank 0 decides first

    def _terminate(self, failure: FailureReport) -> None:
        # The steps below may need a lock that the main thread holds.
        faulthandler.dump_traceback_later(4 * GRACE, exit=True, file=2)
        write_stack_dump(open_stack_dumps(self.folder, self.rank), self.folder, failure.text, dump_all_stacks())
        if self._client is not None:
            self._client.report(failure, self._period)
        self._report()
        if self._client is not None and not self._stopped.wait(GRACE) and self._is_ending:
            return
        self._children.kill(timeout=0)
        os._exit(failure.exit_code)

    # -- the end of the run ------------------------------------------------------------------------------------------

    def _report(self) -> None:
        """Log the failure once, on one rank of each node: the first rank there that has not failed itself."""
        assert self.failure is not None
        with self._report_lock:
            if self._is_reported:
                return
            self._is_reported = True
        if self.world_size == 1 or self.local_rank == int(self.failure.rank == self.rank - self.local_rank):
            fields = event("process_lost", rank=max(self.failure.rank, 0), error=self.failure.text)
            log.error(
                "%s; ending (stacks in %s)%s", self.failure.text, self.folder / "faults", self.oom_note(), extra=fields
            )
            if self.failure.lost:
                self.on_lost()

    def _kill_children_of_failed_run(self) -> None:
        if self.failure is not None:
            self._children.kill(2 * GRACE)

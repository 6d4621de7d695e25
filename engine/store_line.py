"""A process's own line to the store through which the processes of a run found each other."""

import json
import logging
import socket
import threading
import time
import uuid
from collections.abc import Callable
from datetime import timedelta

from torch.distributed import PrefixStore, Store, TCPStore
from torch.distributed.distributed_c10d import _get_default_store

from engine.pulse import Pulse, Verdict

log = logging.getLogger("lockstep")

_REFUSALS = 3
"""So often must nobody listen, a period apart, until the store's host counts as gone."""


class StoreLine:
    """A thread that publishes this process's pulse every `period` seconds and reads the first process's.

    The first process reads those of all. What has been read stands in `pulses` and `verdict`; `number` counts the
    exchanges. Only the thread itself touches the store, so nobody else is held up when it does not answer.
    """

    def __init__(self, pulse: Callable[[int], Pulse], rank: int, processes: int, period: float) -> None:
        self.number, self.pulses, self.verdict = 0, dict[int, Pulse](), None
        self.host_is_gone = False
        self.hears_all = rank == 0
        self._pulse, self._rank, self._processes, self._period = pulse, rank, processes, period
        self._report: Verdict | None = None
        self._leaving = self._hurry = self._closed = False
        self._left = self._readers = self._refusals = 0
        self._wake = threading.Event()
        default = _get_default_store()
        # Torch keeps the keys of restarts apart under the default store; a word left there does the same for ours.
        self._prefix = default.compare_set("lockstep", "", uuid.uuid4().hex).decode()
        while isinstance(default, PrefixStore):
            default = default.underlying_store
        self._host, self._port = default.host, default.port
        self._store: Store | None = self._connect()
        self._thread = threading.Thread(target=self._run, name="lockstep-line", daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        return f"{self._host}:{self._port}"

    def report(self, verdict: Verdict, patience: float) -> Verdict:
        """Writes a verdict unless there is one; returns the one that counts (after `patience` s the given one)."""
        self._report = verdict
        self._wait(lambda: self.verdict is not None, patience)
        return self.verdict or verdict

    def await_readers(self, patience: float) -> None:
        """Until all processes have read the verdict, for at most `patience` s: the store may end with this process."""
        self._wait(lambda: self._readers >= self._processes, patience)

    def leave(self, patience: float) -> None:
        """Says goodbye; the first process waits, at most `patience` s, until all have."""
        self._leaving = True
        self._wait(lambda: self._left >= (self._processes if self._rank == 0 else 1), patience)
        self.close()

    def close(self) -> None:
        """Ends the thread, unless it is kept waiting: a call that returns at the interpreter's end could abort it."""
        self._closed = True
        self._wake.set()
        self._thread.join(1)

    def _wait(self, condition: Callable[[], bool], patience: float) -> None:
        deadline = time.monotonic() + patience
        self._hurry = True
        self._wake.set()
        while not condition() and self._thread.is_alive() and time.monotonic() < deadline:
            time.sleep(0.01)
        self._hurry = False

    # -- the thread --------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._closed:
            if self._store is None:
                self._reconnect()
            else:
                try:
                    self._exchange(self._store)
                except RuntimeError as error:  # torch.distributed's errors
                    log.debug("no answer from %s: %s", self.address, error)
                    self._store = None  # torch prints a page for each call on a connection that is closed
            if self._store is None:
                time.sleep(self._period)
            else:
                self._wake.wait(0.02 if self._hurry else self._period)
                self._wake.clear()

    def _exchange(self, store: Store) -> None:
        store.set(f"pulse/{self._rank}", self._pulse(self.number + 1).encode())
        if self._report is not None:
            store.compare_set("verdict", "", json.dumps(self._report))
        if self.verdict is None and store.check(["verdict"]):
            verdict = Verdict(*json.loads(store.get("verdict")))
            store.add("readers", 1)
            self.verdict = verdict
        if self.verdict is not None:
            self._readers = store.add("readers", 0)
        ranks = range(self._processes) if self.hears_all else (0,)
        keys = {rank: f"pulse/{rank}" for rank in ranks if rank != self._rank}
        keys = {rank: key for rank, key in keys.items() if rank in self.pulses or store.check([key])}
        found = store.multi_get(list(keys.values())) if keys else []
        self.pulses = {rank: Pulse.decode(text) for rank, text in zip(keys, found, strict=True)}
        if self._leaving:
            self._left = store.add("left", 0 if self._left else 1)
        self._refusals = 0
        self.number += 1

    def _connect(self) -> Store:
        store = TCPStore(self._host, self._port, is_master=False, timeout=timedelta(minutes=1))
        return PrefixStore(f"lockstep/{self._prefix}", store)

    def _reconnect(self) -> None:
        """A cut link comes back perhaps; where nobody listens any more, the process that listened has ended."""
        try:
            socket.create_connection((self._host, self._port), timeout=2).close()
            self._store = self._connect()
        except ConnectionRefusedError:
            self._refusals += 1
            self.host_is_gone = self._refusals >= _REFUSALS
        except (OSError, RuntimeError) as error:
            log.debug("no way to %s: %s", self.address, error)

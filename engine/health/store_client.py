"""Exchanges heartbeats through torch's rendezvous store, in a thread of its own."""

import json
import logging
import socket
import threading
import time
import uuid
from collections.abc import Callable
from datetime import timedelta

from torch.distributed import PrefixStore, Store, TCPStore

from engine.health.heartbeat import FailureReport, Heartbeat
from engine.lightning_internals.processes import default_store

log = logging.getLogger("lockstep")

_MAX_REFUSALS = 3
"""Refused connections, one period apart, after which the store's host counts as gone."""


class HeartbeatClient:
    """Publishes this rank's heartbeat every `period` seconds and reads rank 0's; rank 0 reads the heartbeats of all.

    Only the client's thread touches the store, so no other thread is blocked while the store does not answer.

    Attributes:
        exchanges: number of finished exchanges with the store.
        heartbeats: the latest heartbeat of each rank that is read.
        failure: the first failure that any rank has reported, None before.
        host_is_gone: whether the host of the store refuses connections.
        reads_all: whether to read the heartbeats of all ranks.
    """

    def __init__(self, heartbeat: Callable[[int], Heartbeat], rank: int, world_size: int, period: float) -> None:
        self.exchanges, self.heartbeats = 0, dict[int, Heartbeat]()
        self.failure: FailureReport | None = None
        self.host_is_gone = False
        self.reads_all = rank == 0
        self._heartbeat, self._rank, self._world_size, self._period = heartbeat, rank, world_size, period
        self._own_report: FailureReport | None = None
        self._is_leaving = self._is_urgent = self._is_closed = False
        self._ranks_left = self._readers = self._refusals = 0
        self._wake = threading.Event()
        default = default_store()
        # Torch separates the keys of restarts with a prefix of the default store. The client connects to the underlying
        # store, so it shares a prefix of its own through the default store.
        # The first rank sets the prefix; all others receive it.
        self._prefix = default.compare_set("lockstep", "", uuid.uuid4().hex).decode()
        while isinstance(default, PrefixStore):
            default = default.underlying_store
        if not isinstance(default, TCPStore):
            raise TypeError(f"the rendezvous store is a {type(default).__name__}, expected a TCPStore")
        self._host, self._port = default.host, default.port
        self._store: Store | None = self._connect()
        self._thread = threading.Thread(target=self._run, name="lockstep-heartbeat", daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        """Host and port of the store."""
        return f"{self._host}:{self._port}"

    def report(self, failure: FailureReport, timeout: float) -> FailureReport:
        """Report a failure unless another rank was first.

        Returns:
            the first failure of the run, or `failure` if the store does not answer within `timeout` seconds.
        """
        self._own_report = failure
        self._wait(lambda: self.failure is not None, timeout)
        return self.failure or failure

    def await_readers(self, timeout: float) -> None:
        """Wait until all ranks have read the failure, at most `timeout` s: the store may end with this process."""
        self._wait(lambda: self._readers >= self._world_size, timeout)

    def leave(self, timeout: float) -> None:
        """Announce that this rank leaves the run. Rank 0 waits until all ranks have left, at most `timeout` s."""
        self._is_leaving = True
        self._wait(lambda: self._ranks_left >= (self._world_size if self._rank == 0 else 1), timeout)
        self.close()

    def close(self) -> None:
        """Stop the thread. A call to the store that returns during interpreter shutdown could abort the process."""
        self._is_closed = True
        self._wake.set()
        self._thread.join(1)

    def _wait(self, condition: Callable[[], bool], timeout: float) -> None:
        deadline = time.monotonic() + timeout
        self._is_urgent = True
        self._wake.set()
        while not condition() and self._thread.is_alive() and time.monotonic() < deadline:
            time.sleep(0.01)
        self._is_urgent = False

    # -- the thread --------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._is_closed:
            if self._store is None:
                self._reconnect()
            else:
                try:
                    self._exchange(self._store)
                except RuntimeError as error:  # torch.distributed's errors
                    log.debug("no answer from %s: %s", self.address, error)
                    self._store = None  # torch prints a page for each call on a closed connection
            if self._store is None:
                time.sleep(self._period)
            else:
                self._wake.wait(0.02 if self._is_urgent else self._period)
                self._wake.clear()

    def _exchange(self, store: Store) -> None:
        store.set(f"heartbeat/{self._rank}", self._heartbeat(self.exchanges + 1).encode())
        if self._own_report is not None:
            # Only the first report of the run is stored: later failures are its consequences.
            store.compare_set("failure", "", json.dumps(self._own_report))
        if self.failure is None and store.check(["failure"]):
            failure = FailureReport(*json.loads(store.get("failure")))
            # Each rank adds 1 when it has read the failure; `await_readers` waits for all.
            store.add("readers", 1)
            self.failure = failure
        if self.failure is not None:
            # Adding 0 reads a counter, whereas `get` would wait for a key that does not exist.
            self._readers = store.add("readers", 0)
        ranks = range(self._world_size) if self.reads_all else (0,)
        keys = {rank: f"heartbeat/{rank}" for rank in ranks if rank != self._rank}
        # multi_get blocks on a key that does not exist yet.
        keys = {rank: key for rank, key in keys.items() if rank in self.heartbeats or store.check([key])}
        values = store.multi_get(list(keys.values())) if keys else []
        self.heartbeats = {rank: Heartbeat.decode(text) for rank, text in zip(keys, values, strict=True)}
        if self._is_leaving:
            # Counts this rank once, and then only reads.
            self._ranks_left = store.add("left", 0 if self._ranks_left else 1)
        self._refusals = 0
        self.exchanges += 1

    def _connect(self) -> Store:
        store = TCPStore(self._host, self._port, is_master=False, timeout=timedelta(minutes=1))
        return PrefixStore(f"lockstep/{self._prefix}", store)

    def _reconnect(self) -> None:
        """Try to connect again. A timeout may be a cut link; repeated refusals mean that the host's process ended."""
        try:
            socket.create_connection((self._host, self._port), timeout=2).close()
            self._store = self._connect()
        except ConnectionRefusedError:
            self._refusals += 1
            self.host_is_gone = self._refusals >= _MAX_REFUSALS
        except (OSError, RuntimeError) as error:
            log.debug("no connection to %s: %s", self.address, error)

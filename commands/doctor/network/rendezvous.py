"""Exchanges values between ranks before a process group exists, with heartbeats that name missing ranks.

Every rank sends heartbeats. A rank whose heartbeats stop was killed, stopped or cut off, and no rank waits for it, so
that an exchange takes no longer than the slowest live rank.
"""

import json
import socket
import threading
import time
from collections.abc import Mapping
from typing import Any

from commands.launch.launched_processes import Rendezvous
from engine.io.error_line import first_line

_INTERVAL = 0.5
"""Seconds between two heartbeats."""
_SILENCE = 15.0
"""Seconds without a heartbeat after which a rank is lost; load on a machine may delay a heartbeat for seconds."""
_STORE_TIMEOUT = 20.0
"""Seconds after which an operation of the store fails."""


class HeartbeatStoreError(Exception):
    """The store cannot be reached, or the connection to it was lost."""


class HeartbeatStore:
    """Store that all ranks share, with the heartbeats of this rank.

    Args:
        rendezvous: address of the store, rank and world size.
        restart: identifies this start of the ranks; equal on all ranks, see `restart_id`.
        timeout: seconds to wait for all ranks.

    Raises:
        HeartbeatStoreError: the store cannot be reached.
    """

    def __init__(self, rendezvous: Rendezvous, restart: str, timeout: float) -> None:
        self.rank, self.world_size = rendezvous.rank, rendezvous.processes
        self.address = f"{rendezvous.address}:{rendezvous.port}"
        self.present = list(range(rendezvous.processes))
        self._rendezvous, self._restart, self._timeout = rendezvous, restart, timeout
        self._serves = rendezvous.rank == 0 and not rendezvous.store_outlives_ranks
        self._heartbeats: dict[int, tuple[bytes, float]] = {}
        if not self._serves:
            _wait_for_listener(rendezvous, timeout)
        self._store = self._connect(self._serves)
        self._ended = threading.Event()
        self._heartbeat_store = self._connect(False)  # a connection of its own, which nothing blocks
        threading.Thread(target=self._send_heartbeats, name="doctor-heartbeat", daemon=True).start()

    def gather(self, topic: str, value: object, timeout: float | None = None) -> dict[int, Any]:
        """Return the value of each live rank, the same on all ranks; later calls do not wait for missing ranks.

        Args:
            topic: key, used once.
            value: a JSON value.
            timeout: seconds to wait for ranks that have sent no heartbeat yet.

        Raises:
            HeartbeatStoreError: the store or rank 0 was lost.
        """
        from torch.distributed import DistError

        deadline = time.monotonic() + (self._timeout if timeout is None else timeout)
        try:
            self._store.set(f"{topic}/{self.rank}", json.dumps(value))
            if self.rank:
                while not self._store.check([f"{topic}/all"]):
                    if not self._alive(0, deadline):
                        raise HeartbeatStoreError(f"rank 0 has sent no heartbeat for {_SILENCE:.0f} s")
                    time.sleep(0.02)
                values = json.loads(self._store.get(f"{topic}/all"))
            else:
                # Rank 0 decides which ranks are present, so that all ranks get the same answer.
                values = self._collect(topic, deadline)
                self._store.set(f"{topic}/all", json.dumps(values))
        except (DistError, RuntimeError) as error:
            raise HeartbeatStoreError(
                f"the store at {self.address} does not answer any more ({first_line(error)})"
            ) from error
        self.present = sorted(map(int, values))
        if self.rank not in self.present:
            raise HeartbeatStoreError("rank 0 has given this rank up: it was late, or stopped for a while")
        return {int(rank): item for rank, item in values.items()}

    def store_for(self, purpose: str) -> Any:
        """Return the store with a key prefix."""
        from torch.distributed import PrefixStore

        return PrefixStore(purpose, self._store)

    def leave(self) -> None:
        """Wait until all ranks have left: a store that rank 0 serves ends with its process."""
        try:
            self.gather("leave", None)
            if self._serves:
                time.sleep(4 * _INTERVAL if len(self.present) > 1 else 0)  # until the other ranks have read it
        except HeartbeatStoreError:
            pass  # all values were exchanged before
        self._ended.set()

    def _collect(self, topic: str, deadline: float) -> dict[int, Any]:
        values: dict[int, Any] = {}
        waiting = list(self.present)
        while waiting:
            for rank in list(waiting):
                if self._store.check([f"{topic}/{rank}"]):
                    values[rank] = json.loads(self._store.get(f"{topic}/{rank}"))
                elif self._alive(rank, deadline):
                    continue
                waiting.remove(rank)
            time.sleep(0.02)
        return values

    def _alive(self, rank: int, deadline: float) -> bool:
        """Return whether to wait for a rank: it sends heartbeats, or it may still be starting."""
        key, now = f"heartbeat/{rank}", time.monotonic()
        if not self._store.check([key]):
            return now < deadline
        heartbeat = self._store.get(key)
        # Measured by this rank's own clock since the last change, because clocks of machines differ.
        last, since = self._heartbeats.get(rank, (b"", now))
        if heartbeat != last:
            since = now
        self._heartbeats[rank] = heartbeat, since
        return now - since < _SILENCE

    def _send_heartbeats(self) -> None:
        number = 0
        while not self._ended.wait(_INTERVAL):
            number += 1
            try:
                self._heartbeat_store.set(f"heartbeat/{self.rank}", str(number))
            except RuntimeError:
                return  # the store is lost; the main thread notices it too

    def _connect(self, serves: bool) -> Any:
        from torch.distributed import PrefixStore

        from commands.launch.store_connection import open_store

        rendezvous = self._rendezvous
        try:
            store = open_store(rendezvous.address, rendezvous.port, serves, _STORE_TIMEOUT)
        except RuntimeError as error:
            raise HeartbeatStoreError(f"{self.address}: {first_line(error)}") from error
        return PrefixStore(f"doctor/{self._restart}", store)


def restart_id(environ: Mapping[str, str]) -> str:
    """Return an id of this restart: torchrun's store outlives the ranks and keeps the values of an earlier start."""
    return "-".join(environ.get(name, "") for name in ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"))


def _wait_for_listener(rendezvous: Rendezvous, timeout: float) -> None:
    """Wait until a process listens; TCPStore itself reports only that it timed out, not the cause."""
    from commands.launch.store_connection import wait_for_listener

    try:
        wait_for_listener(rendezvous.address, rendezvous.port, timeout)
    except OSError as error:
        raise HeartbeatStoreError(
            f"rank {rendezvous.rank} of {rendezvous.processes} on {socket.gethostname()} has tried for "
            f"{timeout:.0f} s to reach rank 0 at {rendezvous.address}:{rendezvous.port}: {error or 'no answer'}"
        ) from error

"""Connects separately started ranks to a store for decisions before there is a process group."""

import json
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from torch.distributed import TCPStore

from commands.launch.launched_processes import Rendezvous
from commands.launch.store_connection import SilentProgramError, open_store, wait_for_listener
from engine.io.error_line import first_line

TIMEOUT = 300.0
"""Seconds to wait for the other ranks, which may still be importing."""
PORT_TIMEOUT = 10.0
"""Seconds in which a port may become free: the process that used it may still be ending."""
HOST_TIMEOUT = 30.0
"""Seconds for a host name to resolve; in a cluster the name of a pod appears after the pod."""

_served: list[TCPStore] = []  # stores that this process serves, kept until it ends

FoundT = TypeVar("FoundT")


class RendezvousStore:
    """Client of the store at MASTER_ADDR and MASTER_PORT; rank 0 serves it unless the launcher does.

    The store of torchrun's agent outlives the ranks, so replies to dead ranks remain in it. Each rank therefore
    requests with a token of its own, and only a reply to that token counts.

    Raises:
        ValueError: the address does not resolve, cannot be reached or does not answer, or another program uses
            the port.
    """

    def __init__(self, rendezvous: Rendezvous) -> None:
        self._rendezvous = rendezvous
        serves = rendezvous.rank == 0 and not rendezvous.store_outlives_ranks
        _wait_for_host(rendezvous.address)
        self.store = self._connect(serves)
        if serves:
            _served.append(self.store)

    def _connect(self, serves: bool) -> TCPStore:
        rendezvous, deadline = self._rendezvous, time.monotonic() + PORT_TIMEOUT
        while True:
            try:
                if not serves:
                    wait_for_listener(rendezvous.address, rendezvous.port, TIMEOUT)
                return open_store(rendezvous.address, rendezvous.port, serves, TIMEOUT)
            except (RuntimeError, OSError) as error:
                in_use = "EADDRINUSE" in str(error)
                if in_use and time.monotonic() < deadline:
                    time.sleep(0.5)
                    continue
                problem = "is in use by another program" if in_use else "cannot be reached"
                if isinstance(error, SilentProgramError):
                    problem = "does not answer as rank 0 would"
                raise ValueError(
                    f"MASTER_ADDR {rendezvous.address}, MASTER_PORT {rendezvous.port} of rank {rendezvous.rank} of "
                    f"{rendezvous.processes} {problem}: set both to the machine of rank 0 and a free port there, "
                    f"the same on all ranks ({first_line(error)})"
                ) from error

    def decide(self, key: str, compute: Callable[[], str], keep: bool = False) -> str:
        """Return what rank 0 computes, on every rank.

        Args:
            key: key of the decision.
            compute: called on rank 0 alone.
            keep: whether a restart gets the result of the first start, where the store outlives the ranks.

        Raises:
            ValueError: `compute` raised on rank 0, or a rank does not come in time.
        """
        return self._compute(key, compute, keep) if self._rendezvous.rank == 0 else self._request(key)

    def _request(self, key: str) -> str:
        token = uuid.uuid4().hex
        self.store.set(f"lockstep/{key}/requests/{self._rendezvous.rank}", token)
        reply = self._wait(lambda: self._reply(key, token), "rank 0", f"lockstep/{key}/at_work")
        self.store.set(f"lockstep/{key}/received/{self._rendezvous.rank}", reply["from"])
        if "error" in reply:
            raise ValueError(f"rank 0 ended: {reply['error']}")
        return reply["answer"]

    def _reply(self, key: str, token: str) -> dict[str, str] | None:
        text = self._get(f"lockstep/{key}/reply/{self._rendezvous.rank}")
        reply = json.loads(text) if text else {}
        return reply if reply.get("to") == token else None

    def _compute(self, key: str, compute: Callable[[], str], keep: bool) -> str:
        kept_key = f"lockstep/{key}/kept"
        try:
            with self._at_work(key):
                text = (self._get(kept_key) if keep else None) or compute()
        except (ValueError, OSError) as error:
            self._send(key, {"error": str(error)})
            raise
        if keep:
            self.store.set(kept_key, text)
        self._send(key, {"answer": text})
        return text

    @contextmanager
    def _at_work(self, key: str) -> Iterator[None]:
        """Extend the waiting time of the other ranks: reading large checkpoints takes longer than `TIMEOUT`."""
        done = threading.Event()

        def report() -> None:
            while not done.wait(TIMEOUT / 20):
                self.store.add(f"lockstep/{key}/at_work", 1)

        thread = threading.Thread(target=report, name="lockstep-at-work", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def _send(self, key: str, reply: dict[str, str]) -> None:
        """Reply to each rank and wait until all have received it: the store may end with this process."""
        # Acknowledgements of an earlier start remain in the store of torchrun's agent, so replies have a token, too.
        reply = {**reply, "from": uuid.uuid4().hex}
        sent: dict[int, str] = {}  # rank -> token of the request that was replied to
        waiting = set(range(1, self._rendezvous.processes))

        def all_received() -> bool:
            for rank in sorted(waiting):
                token = self._get(f"lockstep/{key}/requests/{rank}")
                if token and sent.get(rank) != token:
                    sent[rank] = token
                    self.store.set(f"lockstep/{key}/reply/{rank}", json.dumps({**reply, "to": token}))
                if self._get(f"lockstep/{key}/received/{rank}") == reply["from"]:
                    waiting.discard(rank)
            return not waiting

        self._wait(all_received, f"some of the {self._rendezvous.processes} ranks")

    def _get(self, key: str) -> str | None:
        return self.store.get(key).decode() if self.store.check([key]) else None

    def _wait(self, poll: Callable[[], FoundT | None], awaited: str, at_work: str | None = None) -> FoundT:
        """Return the first true result of `poll`. A change of the key `at_work` extends the waiting time."""
        deadline, last = time.monotonic() + TIMEOUT, None
        while not (result := poll()):
            if at_work and (count := self._get(at_work)) != last:
                deadline, last = time.monotonic() + TIMEOUT, count
            if time.monotonic() > deadline:
                rank, processes, address, port, _ = self._rendezvous
                raise ValueError(
                    f"rank {rank} of {processes} has waited {TIMEOUT:.0f} s for {awaited} at MASTER_ADDR {address}, "
                    f"MASTER_PORT {port}: have all been started, with the same WORLD_SIZE and a RANK of their own?"
                )
            time.sleep(0.02)
        return result


def _wait_for_host(address: str) -> None:
    deadline = time.monotonic() + HOST_TIMEOUT
    while True:
        try:
            socket.getaddrinfo(address, None)
            return
        except OSError as error:
            if time.monotonic() > deadline:
                raise ValueError(
                    f"MASTER_ADDR {address}: this machine knows no such host ({error}); expected the machine of rank 0"
                ) from error
            time.sleep(0.5)

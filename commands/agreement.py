"""One answer for all processes of a run, before they can talk to each other.

What depends on the clock or on the files of the moment (a new run's name, which checkpoint is the newest) must not be
asked by each process for itself: they would get different answers and never notice.

Processes that were started apart (torchrun, srun, Kubernetes, by hand) meet in a torch store. Under torchrun the store
is its agent's and outlives the processes: what a dead process has left there must not be taken for an answer. So every
process asks with a token of its own, and only a reply to that token counts.
"""

import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from datetime import timedelta
from importlib import import_module
from typing import Any

from commands.processes import Place, meeting_place

_PREFIX = "LOCKSTEP_AGREED_"
_PATIENCE = 300.0
"""Seconds for all processes to come: some may still be importing."""
_PORT_PATIENCE = 10.0
"""Seconds in which a port may become free: the process that had it before may still be on its way out."""
_NAME_PATIENCE = 30.0
"""Seconds for a host name to become known; in a cluster a pod's name follows the pod."""

_hosted: list[Any] = []  # stores that this process serves, alive as long as it


def agreed(question: str, answer: Callable[[], str], environ: MutableMapping[str, str] | None = None) -> str:
    """The first process's answer; the others get it from the store, or in their environment when Lightning starts them.

    Raises:
        ValueError: what the first process's answer raised, or the processes do not find each other.
    """
    environ = os.environ if environ is None else environ
    place = meeting_place(environ)
    if place is not None:
        return answer() if place.processes == 1 else _Meeting(place).agree(question, answer)
    variable = _PREFIX + question.upper()
    if environ.get("LOCAL_RANK", "0") != "0" and variable in environ:
        return environ[variable]
    if int(environ.get("WORLD_SIZE", "1")) > 1 and variable not in environ:
        raise ValueError(
            f"WORLD_SIZE is {environ['WORLD_SIZE']}, but RANK is not set: give every process RANK, WORLD_SIZE, "
            "MASTER_ADDR and MASTER_PORT (and LOCAL_RANK with several on a machine), or start them with torchrun or "
            "srun"
        )
    environ[variable] = answer()
    return environ[variable]


def begun_before(environ: MutableMapping[str, str]) -> bool:
    """Whether the launcher has started this run before and starts it again; to be asked by the first process, once.

    torchrun's count of restarts leaves out nodes that come and go, so starts are counted in its agent's store.
    """
    if any(int(environ.get(name, "0")) > 0 for name in ("TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT")):
        return True
    place = meeting_place(environ)
    return place is not None and place.outlives_us and _Meeting(place).store.add("lockstep/starts", 1) > 1


def part_from_earlier_lives(environ: MutableMapping[str, str]) -> None:
    """Under torchrun: keys of their own for this life of the processes, in the store that they share with the last one.

    Without it the processes of a restarted team find the addresses of the dead ones there and are refused.
    """
    place = meeting_place(environ)
    if place is None or not place.outlives_us or place.processes == 1:
        return
    from torch.distributed import PrefixStore

    torch_rendezvous = import_module("torch.distributed.rendezvous")
    life = agreed("life", lambda: uuid.uuid4().hex, environ)

    def of_this_life(*args: Any, **kwargs: Any) -> Iterator[tuple[Any, int, int]]:
        for store, rank, processes in torch_rendezvous._env_rendezvous_handler(*args, **kwargs):
            yield PrefixStore(life, store), rank, processes

    torch_rendezvous._rendezvous_handlers["env"] = of_this_life


class _Meeting:
    """The store where the processes of a run meet."""

    def __init__(self, place: Place) -> None:
        from torch.distributed import TCPStore

        self._place = place
        serves = place.rank == 0 and not place.outlives_us
        _wait_for_name(place.address)
        deadline = time.monotonic() + _PORT_PATIENCE
        while True:
            try:
                self.store = TCPStore(
                    place.address,
                    place.port,
                    is_master=serves,
                    multi_tenant=True,
                    wait_for_workers=False,
                    timeout=timedelta(seconds=_PATIENCE),
                )
                break
            except RuntimeError as error:
                taken = "EADDRINUSE" in str(error)
                if taken and time.monotonic() < deadline:
                    time.sleep(0.5)
                    continue
                what = "is in use by another program" if taken else "cannot be reached"
                raise ValueError(
                    f"MASTER_ADDR {place.address}, MASTER_PORT {place.port} of process {place.rank} of "
                    f"{place.processes} {what}: set both to the machine of the first process and a free port there, "
                    f"alike for all processes ({str(error).splitlines()[0]})"
                ) from error
        if serves:
            _hosted.append(self.store)

    def agree(self, question: str, answer: Callable[[], str]) -> str:
        return self._answer(question, answer) if self._place.rank == 0 else self._ask(question)

    def _ask(self, question: str) -> str:
        token = uuid.uuid4().hex
        self.store.set(f"lockstep/{question}/asks/{self._place.rank}", token)
        reply = self._wait(lambda: self._reply(question, token), "the first process", f"lockstep/{question}/at_work")
        self.store.set(f"lockstep/{question}/took/{self._place.rank}", reply["from"])
        if "error" in reply:
            raise ValueError(f"process 0 ended: {reply['error']}")
        return reply["answer"]

    def _reply(self, question: str, token: str) -> dict[str, str] | None:
        text = self._get(f"lockstep/{question}/reply/{self._place.rank}")
        reply = json.loads(text) if text else {}
        return reply if reply.get("to") == token else None

    def _answer(self, question: str, answer: Callable[[], str]) -> str:
        kept = f"lockstep/{question}/kept"
        try:
            with self._at_work(question):
                text = (self._get(kept) if question == "run_name" else None) or answer()
        except (ValueError, OSError) as error:
            self._hand_out(question, {"error": str(error)})
            raise
        self.store.set(kept, text)
        self._hand_out(question, {"answer": text})
        return text

    @contextmanager
    def _at_work(self, question: str) -> Iterator[None]:
        """Lets the others wait on: looking through large checkpoints takes longer than they wait for a silent one."""
        done = threading.Event()

        def say_so() -> None:
            while not done.wait(_PATIENCE / 20):
                self.store.add(f"lockstep/{question}/at_work", 1)

        thread = threading.Thread(target=say_so, name="lockstep-at-work", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def _hand_out(self, question: str, reply: dict[str, str]) -> None:
        reply = {**reply, "from": uuid.uuid4().hex}
        told: dict[int, str] = {}
        waiting = set(range(1, self._place.processes))

        def all_have_it() -> bool:
            for rank in sorted(waiting):
                token = self._get(f"lockstep/{question}/asks/{rank}")
                if token and told.get(rank) != token:
                    told[rank] = token
                    self.store.set(f"lockstep/{question}/reply/{rank}", json.dumps({**reply, "to": token}))
                if self._get(f"lockstep/{question}/took/{rank}") == reply["from"]:
                    waiting.discard(rank)
            return not waiting

        self._wait(all_have_it, f"some of the {self._place.processes} processes")

    def _get(self, key: str) -> str | None:
        return self.store.get(key).decode() if self.store.check([key]) else None

    def _wait(self, ask: Callable[[], Any], whom: str, at_work: str | None = None) -> Any:
        """What `ask` finds. Under `at_work` those who are waited for say that they are still on it."""
        deadline, heard = time.monotonic() + _PATIENCE, None
        while not (found := ask()):
            if at_work and (said := self._get(at_work)) != heard:
                deadline, heard = time.monotonic() + _PATIENCE, said
            if time.monotonic() > deadline:
                raise ValueError(
                    f"process {self._place.rank} of {self._place.processes} has waited {_PATIENCE:.0f} s for {whom} at "
                    f"MASTER_ADDR {self._place.address}, MASTER_PORT {self._place.port}: have all been started, with "
                    "the same WORLD_SIZE and a RANK of their own?"
                )
            time.sleep(0.02)
        return found


def _wait_for_name(address: str) -> None:
    deadline = time.monotonic() + _NAME_PATIENCE
    while True:
        try:
            socket.getaddrinfo(address, None)
            return
        except OSError as error:
            if time.monotonic() > deadline:
                raise ValueError(
                    f"MASTER_ADDR {address} is no host that this machine knows ({error}): it must be the machine of "
                    "the first process"
                ) from error
            time.sleep(0.5)

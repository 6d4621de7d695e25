"""Where a team's processes talk before they compute together: over a store, in which whoever is missing has a name.

Every process keeps a pulse there. Whose pulse stops is gone (killed, stopped, cut off) and is not waited for, so that
no exchange takes longer than the slowest process that is alive.
"""

import json
import socket
import threading
import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from commands.processes import Place

_BEAT = 0.5
"""Seconds between two beats of a pulse."""
_SILENCE = 15.0
"""Seconds without a beat after which a process counts as gone; a machine under load may hold one up for seconds."""
_ANSWER = timedelta(seconds=20)
"""For the store to answer."""


class NoMeeting(Exception):
    """This process has not found the store, or has lost it; says why."""


class Meeting:
    """The store of a team, seen by one of its processes.

    Args:
        place: where it is.
        life: what tells this start of the processes from an earlier one, alike for all of them.
        patience: seconds for all processes to come.

    Raises:
        NoMeeting: it cannot be reached.
    """

    def __init__(self, place: Place, life: str, patience: float) -> None:
        self.rank, self.processes, self.address = place.rank, place.processes, f"{place.address}:{place.port}"
        self.present = list(range(place.processes))
        self._place, self._life, self._patience = place, life, patience
        self._serves = place.rank == 0 and not place.outlives_us
        self._heard: dict[int, tuple[bytes, float]] = {}
        if not self._serves:
            _wait_for_listener(place, patience)
        self._store = self._connect(self._serves)
        self._over = threading.Event()
        self._line = self._connect(False)  # the pulse's own: it beats while the other waits
        threading.Thread(target=self._beat, name="doctor-pulse", daemon=True).start()

    def gather(self, topic: str, word: Any, patience: float | None = None) -> dict[int, Any]:
        """What each process says about a topic, the same on all of them; who is missing in it is not waited for again.

        Args:
            word: anything that JSON holds.
            patience: seconds to wait even for those that were never heard.

        Raises:
            NoMeeting: the store or the first process is gone.
        """
        from torch.distributed import DistError

        deadline = time.monotonic() + (self._patience if patience is None else patience)
        try:
            self._store.set(f"{topic}/{self.rank}", json.dumps(word))
            if self.rank:
                while not self._store.check([f"{topic}/all"]):
                    if not self._alive(0, deadline):
                        raise NoMeeting(f"process 0 has given no sign of life for {_SILENCE:.0f} s")
                    time.sleep(0.02)
                words = json.loads(self._store.get(f"{topic}/all"))
            else:
                words = self._all(topic, deadline)
                self._store.set(f"{topic}/all", json.dumps(words))
        except (DistError, RuntimeError) as error:
            raise NoMeeting(f"the store at {self.address} does not answer any more ({_first_line(error)})") from error
        self.present = sorted(map(int, words))
        if self.rank not in self.present:
            raise NoMeeting("process 0 took this process for gone: it was late, or stopped for a while")
        return {int(rank): word for rank, word in words.items()}

    def store_for(self, purpose: str) -> Any:
        """A part of the store with keys of its own."""
        from torch.distributed import PrefixStore

        return PrefixStore(purpose, self._store)

    def leave(self) -> None:
        """The last words; a store that the first process serves ends with it, so it stays until all have left."""
        try:
            self.gather("leave", None)
            if self._serves:
                time.sleep(4 * _BEAT if len(self.present) > 1 else 0)  # for the others to read that they may go
        except NoMeeting:
            pass  # all that was to be said has been said
        self._over.set()

    def _all(self, topic: str, deadline: float) -> dict[int, Any]:
        words: dict[int, Any] = {}
        waiting = list(self.present)
        while waiting:
            for rank in list(waiting):
                if self._store.check([f"{topic}/{rank}"]):
                    words[rank] = json.loads(self._store.get(f"{topic}/{rank}"))
                elif self._alive(rank, deadline):
                    continue
                waiting.remove(rank)
            time.sleep(0.02)
        return words

    # -- pulses ------------------------------------------------------------------------------------------------------

    def _alive(self, rank: int, deadline: float) -> bool:
        """Whether another process is to be waited for: its pulse beats, or it may still be starting."""
        key, now = f"pulse/{rank}", time.monotonic()
        if not self._store.check([key]):
            return now < deadline
        beat = self._store.get(key)
        last, since = self._heard.get(rank, (b"", now))
        if beat != last:
            since = now
        self._heard[rank] = beat, since
        return now - since < _SILENCE

    def _beat(self) -> None:
        number = 0
        while not self._over.wait(_BEAT):
            number += 1
            try:
                self._line.set(f"pulse/{self.rank}", str(number))
            except RuntimeError:
                return  # the store is gone, which the main thread finds out, too

    def _connect(self, serves: bool) -> Any:
        from torch.distributed import PrefixStore, TCPStore

        place = self._place
        try:
            store = TCPStore(
                place.address, place.port, is_master=serves, multi_tenant=True, wait_for_workers=False, timeout=_ANSWER
            )
        except RuntimeError as error:
            raise NoMeeting(f"{self.address}: {_first_line(error)}") from error
        return PrefixStore(f"doctor/{self._life}", store)


def life_of(environ: Mapping[str, str]) -> str:
    """torchrun's store outlives the processes; what dead ones have left there must not be taken for an answer."""
    return "-".join(environ.get(name, "") for name in ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"))


def _wait_for_listener(place: Place, patience: float) -> None:
    """Until somebody listens. Torch's own attempt says only that it took too long, not what is in the way."""
    deadline = time.monotonic() + patience
    while True:
        try:
            socket.create_connection((place.address, place.port), timeout=5).close()
            return
        except OSError as error:
            if time.monotonic() > deadline:
                raise NoMeeting(
                    f"process {place.rank} of {place.processes} on {socket.gethostname()} has tried for "
                    f"{patience:.0f} s to reach process 0 at {place.address}:{place.port}: {error or 'no answer'}"
                ) from error
            time.sleep(0.3)


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]

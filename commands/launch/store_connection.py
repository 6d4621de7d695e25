"""Connects to torch's TCPStore without waiting for a program that accepts connections and never answers."""

import socket
import threading
import time
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from datetime import timedelta

from torch.distributed import TCPStore

ANSWER_TIMEOUT = 30.0
"""Seconds in which a store answers a new connection. The server is a thread of torch's, which no Python code delays."""

_RETRY = 0.3
"""Seconds between two attempts to connect."""


class SilentProgramError(RuntimeError):
    """A program listens at the address of the store and does not answer as a store."""


def wait_for_listener(address: str, port: int, timeout: float) -> None:
    """Wait until a process listens at an address.

    Raises:
        OSError: the last attempt failed after `timeout` seconds.
    """
    deadline = time.monotonic() + timeout
    while True:
        try:
            socket.create_connection((address, port), timeout=5).close()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_RETRY)


def open_store(address: str, port: int, serves: bool, timeout: float) -> TCPStore:
    """Return a store at an address, where a process must listen already unless this process serves the store.

    torch's constructor has no limit for the first answer, so a thread calls it.

    Args:
        address: host of the store.
        port: port of the store.
        serves: whether this process serves the store.
        timeout: time limit of the store's operations, in seconds.

    Raises:
        SilentProgramError: no answer came within `ANSWER_TIMEOUT` seconds.
        RuntimeError: the port is in use, or the connection failed; as torch raises it.
    """
    result: Future[TCPStore] = Future()

    def connect() -> None:
        try:
            store = TCPStore(
                address,
                port,
                is_master=serves,
                # The process group of this process may use the same address; its store then shares this server.
                multi_tenant=True,
                # The constructor would wait for all ranks; a decision waits for them itself and names who is missing.
                wait_for_workers=False,
                timeout=timedelta(seconds=timeout),
            )
        except Exception as error:
            result.set_exception(error)
        else:
            result.set_result(store)

    threading.Thread(target=connect, name="lockstep-store", daemon=True).start()
    try:
        return result.result(ANSWER_TIMEOUT)
    except FutureTimeoutError:
        raise SilentProgramError(
            f"a program accepts connections at {address}:{port}, but has not answered for {ANSWER_TIMEOUT:g} s"
        ) from None

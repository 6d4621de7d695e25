"""Chooses free TCP ports of this machine."""

import random
import socket
from contextlib import ExitStack, suppress


def free_ports(number: int) -> list[int]:
    """Return ports on which no process listens, and which the system gives to no client meanwhile."""
    with ExitStack() as stack:
        found: list[int] = []
        while len(found) < number:
            candidate = stack.enter_context(socket.socket())
            with suppress(OSError):
                candidate.bind(("127.0.0.1", random.SystemRandom().randrange(10_000, 32_000)))
                found.append(candidate.getsockname()[1])
        return found

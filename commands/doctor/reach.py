"""Whether the processes reach each other where gloo will look for them, which is not where they met.

All of them meet at one address. To compute, each opens ports of its own at the address of an interface that it chooses
for itself: by GLOO_SOCKET_IFNAME, else by its host's name. A wrong choice or a firewall shows only then, as a hang.
"""

import ipaddress
import os
import secrets
import socket
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import NamedTuple

import psutil

from commands.doctor.finding import Finding

_PATIENCE = 5.0
"""Seconds for a connection."""
_TOKEN = 16  # bytes


class Offer(NamedTuple):
    """Where a process says that it can be reached."""

    address: str
    port: int
    token: str
    """What it answers: an address such as 127.0.0.1 may be another process's."""
    interfaces: str
    """For the remedy: the interfaces that it has."""


class Listener:
    """Answers with its token whoever connects, until it is closed."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        address = gloo_address(environ)
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._socket = socket.create_server((address, 0), family=family)
        token = secrets.token_hex(_TOKEN // 2)
        self.offer = Offer(address, self._socket.getsockname()[1], token, interfaces())
        threading.Thread(target=self._answer, name="doctor-listener", daemon=True).start()

    def _answer(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return  # closed
            with connection:
                connection.sendall(self.offer.token.encode())

    def close(self) -> None:
        # Closing alone leaves the port open for as long as the thread waits at it.
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


def gloo_address(environ: Mapping[str, str]) -> str:
    """The address that gloo listens at: of the named interface, else of the host's name, else the loopback.

    Raises:
        ValueError: GLOO_SOCKET_IFNAME names no interface with an address.
    """
    named = environ.get("GLOO_SOCKET_IFNAME", "").partition(",")[0]
    if named:
        of_it = psutil.net_if_addrs().get(named, ())
        found = [each.address for each in of_it if each.family in (socket.AF_INET, socket.AF_INET6)]
        if not found:
            raise ValueError(f"GLOO_SOCKET_IFNAME is {named}, which has no address here; there are {interfaces()}")
        return found[0].partition("%")[0]
    try:
        for family, _, _, _, place in socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_STREAM):
            with socket.socket(family, socket.SOCK_STREAM) as trial:
                try:
                    trial.bind((place[0], 0))
                except OSError:
                    continue
            return str(place[0])
    except OSError:
        pass  # the name is not known
    return "127.0.0.1"


def interfaces() -> str:
    """`eth0 10.0.0.7, ib0 10.1.0.7`: those that others could reach."""
    named = {
        name: address.address
        for name, addresses in psutil.net_if_addrs().items()
        for address in addresses
        if address.family == socket.AF_INET and not ipaddress.ip_address(address.address).is_loopback
    }
    return ", ".join(f"{name} {address}" for name, address in named.items()) or "none but the loopback"


def failures(offers: Mapping[int, Offer]) -> dict[int, str]:
    """{process: what is in the way} of those that cannot be reached from here."""

    def attempt(offer: Offer) -> str:
        try:
            with socket.create_connection((offer.address, offer.port), timeout=_PATIENCE) as connection:
                connection.settimeout(_PATIENCE)
                heard = connection.recv(_TOKEN).decode(errors="replace")
        except OSError as error:
            return str(error)
        return "" if heard == offer.token else "another program answers there"

    with ThreadPoolExecutor(32) as threads:
        answers = threads.map(attempt, offers.values())
        return {rank: said for rank, said in zip(offers, answers, strict=True) if said}


def reach_findings(
    offers: Mapping[int, Offer], failed: Mapping[int, Mapping[int, str]], names: Mapping[int, str]
) -> Iterator[Finding]:
    """
    Args:
        offers: of the processes that were tried, one of each node.
        failed: {process: {process it cannot reach: what is in the way}}.
        names: of the processes.
    """
    if not any(failed.values()):
        places = sorted({offer.address for offer in offers.values()})
        shown = ", ".join(places[:4]) + (f" and {len(places) - 4} more" if len(places) > 4 else "")
        yield Finding("reachable", "ok", f"the first process of every node reaches those of all others at {shown}")
    for other in sorted({other for others in failed.values() for other in others}):
        by = [rank for rank, others in failed.items() if other in others]
        offer = offers[other]
        yield Finding(
            "reachable", "fail",
            f"{', '.join(names[rank] for rank in by)} cannot reach {names[other]} at {offer.address}, a port of its "
            f"own: {failed[by[0]][other]}",
            "the processes met, but gloo and NCCL connect at these addresses: the first all-reduce would hang",
            _remedy(offer),
        )  # fmt: skip


def _remedy(offer: Offer) -> str:
    if ipaddress.ip_address(offer.address).is_loopback:
        return (
            "export GLOO_SOCKET_IFNAME=NAME NCCL_SOCKET_IFNAME=NAME  # the interface that the nodes share; it has "
            f"{offer.interfaces}"
        )
    return (
        "allow TCP between the nodes on all ports, or name the interface that they share: export "
        f"GLOO_SOCKET_IFNAME=NAME NCCL_SOCKET_IFNAME=NAME (it has {offer.interfaces})"
    )

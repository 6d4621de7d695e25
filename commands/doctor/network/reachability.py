"""Checks that ranks reach each other at the addresses that gloo uses, which are not the rendezvous address.

For the rendezvous all ranks connect to one address. For collectives each rank opens ports at an interface that it
chooses by GLOO_SOCKET_IFNAME, else by the host's name. A wrong choice or a firewall shows only then, as a hang.
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

from commands.doctor.check import Finding
from engine.io.name_list import join_names

_TIMEOUT = 5.0
"""Seconds for a connection."""
_TOKEN = 16  # bytes


class ListeningAddress(NamedTuple):
    """Address at which a rank listens."""

    address: str
    port: int
    token: str
    """Text that it sends: at an address such as 127.0.0.1 another process may answer."""
    interfaces: str
    """Interfaces of its machine, for the remedy."""


class Listener:
    """Sends its token to every connection, until it is closed."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        host = gloo_address(environ)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.create_server((host, 0), family=family)
        token = secrets.token_hex(_TOKEN // 2)
        self.address = ListeningAddress(host, self._socket.getsockname()[1], token, interfaces())
        threading.Thread(target=self._answer, name="doctor-listener", daemon=True).start()

    def _answer(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return  # closed
            with connection:
                connection.sendall(self.address.token.encode())

    def close(self) -> None:
        """Stop listening."""
        # close() alone leaves the port open while the thread waits in accept().
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


def gloo_address(environ: Mapping[str, str]) -> str:
    """Return the address at which gloo listens: of the named interface, else of the host's name, else the loopback.

    Raises:
        ValueError: GLOO_SOCKET_IFNAME names no interface with an address.
    """
    interface_name = environ.get("GLOO_SOCKET_IFNAME", "").partition(",")[0]
    if interface_name:
        addresses = psutil.net_if_addrs().get(interface_name, ())
        ip_addresses = [item.address for item in addresses if item.family in (socket.AF_INET, socket.AF_INET6)]
        if not ip_addresses:
            raise ValueError(
                f"GLOO_SOCKET_IFNAME is {interface_name}, which has no address here; there are {interfaces()}"
            )
        return ip_addresses[0].partition("%")[0]
    try:
        for family, _, _, _, socket_address in socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_STREAM):
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                try:
                    probe.bind((socket_address[0], 0))
                except OSError:
                    continue
            return str(socket_address[0])
    except OSError:
        pass  # the name does not resolve
    return "127.0.0.1"


def interfaces() -> str:
    """Return the interfaces that other hosts could reach: `eth0 10.0.0.7, ib0 10.1.0.7`."""
    named = {
        name: address.address
        for name, addresses in psutil.net_if_addrs().items()
        for address in addresses
        if address.family == socket.AF_INET and not ipaddress.ip_address(address.address).is_loopback
    }
    return ", ".join(f"{name} {address}" for name, address in named.items()) or "none but the loopback"


def unreachable(addresses: Mapping[int, ListeningAddress]) -> dict[int, str]:
    """Return {rank: error} of the ranks that cannot be reached from this process."""

    def connect(listener: ListeningAddress) -> str:
        try:
            with socket.create_connection((listener.address, listener.port), timeout=_TIMEOUT) as connection:
                connection.settimeout(_TIMEOUT)
                received = connection.recv(_TOKEN).decode(errors="replace")
        except OSError as error:
            return str(error)
        return "" if received == listener.token else "another program answers there"

    with ThreadPoolExecutor(32) as threads:
        errors = threads.map(connect, addresses.values())
        return {rank: error for rank, error in zip(addresses, errors, strict=True) if error}


def reach_findings(
    addresses: Mapping[int, ListeningAddress], failed: Mapping[int, Mapping[int, str]], names: Mapping[int, str]
) -> Iterator[Finding]:
    """Report which ranks cannot reach which.

    Args:
        addresses: {rank: address} of one rank of each node.
        failed: {rank: {rank that it cannot reach: error}}.
        names: {rank: name for messages}.
    """
    if not any(failed.values()):
        hosts = join_names(sorted({listener.address for listener in addresses.values()}), 4)
        yield Finding("reachable", "ok", f"the first rank of every node reaches those of all other nodes at {hosts}")
    for peer in sorted({peer for peers in failed.values() for peer in peers}):
        by = [rank for rank, peers in failed.items() if peer in peers]
        listener = addresses[peer]
        yield Finding(
            "reachable", "fail",
            f"{', '.join(names[rank] for rank in by)} cannot reach {names[peer]} at {listener.address}, a port of "
            f"its own: {failed[by[0]][peer]}",
            "the rendezvous succeeds, but gloo and NCCL connect at these addresses: the first all-reduce would hang",
            _remedy(listener),
        )  # fmt: skip


def _remedy(listener: ListeningAddress) -> str:
    if ipaddress.ip_address(listener.address).is_loopback:
        return (
            "export GLOO_SOCKET_IFNAME=NAME NCCL_SOCKET_IFNAME=NAME  # the interface that the nodes share; it has "
            f"{listener.interfaces}"
        )
    return (
        "allow TCP between the nodes on all ports, or name the interface that they share: export "
        f"GLOO_SOCKET_IFNAME=NAME NCCL_SOCKET_IFNAME=NAME (it has {listener.interfaces})"
    )

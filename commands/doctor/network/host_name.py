"""Checks names: the host name, from which gloo derives its address, and MASTER_ADDR."""

import ipaddress
import socket
from collections.abc import Iterable, Iterator, Mapping

from commands.doctor.check import Finding, Status
from commands.doctor.launch_plan import LaunchPlan
from commands.doctor.network.interfaces import Interface


def check_host_name(
    plan: LaunchPlan, environ: Mapping[str, str], name: str, present: Iterable[Interface]
) -> Iterator[Finding]:
    """Check that the host name resolves to an address of this machine that other nodes can use.

    Args:
        plan: number of nodes.
        environ: environment variables; with GLOO_SOCKET_IFNAME gloo does not use the name.
        name: host name.
        present: interfaces of this machine.
    """
    several, interfaces = (plan.nodes or 1) > 1, list(present)
    own_addresses = [address for interface in interfaces if interface.is_external for address in interface.addresses]
    interface = next((interface.name for interface in interfaces if interface.is_external), "eth0")
    address = own_addresses[0] if own_addresses else "ADDRESS"
    remedy = f"export GLOO_SOCKET_IFNAME={interface}  # or in /etc/hosts: {address} {name}"
    is_set = bool(environ.get("GLOO_SOCKET_IFNAME"))
    bad: Status = "fail" if several and not is_set else "warn"
    try:
        addresses = sorted({str(info[4][0]) for info in socket.getaddrinfo(name, None)})
    except OSError as error:
        why = "gloo resolves its own address by it" + ("" if several else ", and falls back to 127.0.0.1")
        yield Finding("host name", bad, f"{name} does not resolve ({error.strerror})", why, remedy)
        return
    found = f"{name} is {', '.join(addresses)}"
    if (
        several
        and not is_set
        and all(ipaddress.ip_address(address.partition("%")[0]).is_loopback for address in addresses)
    ):
        why = "gloo gives this address to the other nodes, where it is each node's own: they wait indefinitely"
        yield Finding("host name", "fail", found, why, remedy)
    elif several and not is_set and own_addresses and not set(addresses) & set(own_addresses):
        why = "gloo gives the other nodes an address that no interface of this machine has"
        yield Finding("host name", "fail", f"{found}; this machine has {', '.join(own_addresses)}", why, remedy)
    else:
        yield Finding("host name", "ok", found)


def check_master_address(plan: LaunchPlan, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Check that MASTER_ADDR, if set, resolves, and with several nodes not to the loopback."""
    host = environ.get("MASTER_ADDR", "")
    if not host:
        return
    remedy = "export MASTER_ADDR=$(getent hosts FIRST_NODE | cut -d' ' -f1)  # an address that all nodes reach"
    try:
        addresses = sorted({str(info[4][0]) for info in socket.getaddrinfo(host, None)})
    except OSError as error:
        why = "all ranks connect to rank 0 there, and would time out"
        yield Finding("master address", "fail", f"MASTER_ADDR={host} does not resolve ({error.strerror})", why, remedy)
        return
    found = f"MASTER_ADDR={host}" + ("" if addresses == [host] else f" is {', '.join(addresses)}")
    if (plan.nodes or 1) > 1 and all(
        ipaddress.ip_address(address.partition("%")[0]).is_loopback for address in addresses
    ):
        why = "it is the loopback of every node: the nodes never find each other"
        yield Finding("master address", "fail", f"{found}, with {plan.nodes} nodes", why, remedy)
    else:
        yield Finding("master address", "ok", found)

"""Names: this machine's own, by which gloo finds the address that it tells the others, and MASTER_ADDR."""

import ipaddress
import socket
from collections.abc import Iterable, Iterator, Mapping

from commands.doctor.finding import Finding
from commands.doctor.interfaces import Interface
from commands.doctor.plan import Plan


def host_name(plan: Plan, environ: Mapping[str, str], name: str, present: Iterable[Interface]) -> Iterator[Finding]:
    """Whether the name leads to an address of this machine that the other nodes can use.

    Args:
        plan: how many nodes there are.
        environ: of which GLOO_SOCKET_IFNAME is read: with it gloo does not look at the name.
        name: the machine's.
        present: the machine's interfaces.
    """
    several, there = (plan.nodes or 1) > 1, list(present)
    own = [address for interface in there if interface.leads_out for address in interface.addresses]
    interface = next((interface.name for interface in there if interface.leads_out), "eth0")
    remedy = f"export GLOO_SOCKET_IFNAME={interface}  # or in /etc/hosts: {own[0] if own else 'ADDRESS'} {name}"
    named = bool(environ.get("GLOO_SOCKET_IFNAME"))
    bad = "fail" if several and not named else "warn"
    try:
        addresses = sorted({str(place[4][0]) for place in socket.getaddrinfo(name, None)})
    except OSError as error:
        why = "gloo looks up its own address by it" + ("" if several else ", and falls back to 127.0.0.1")
        yield Finding("host name", bad, f"{name} does not resolve ({error.strerror})", why, remedy)
        return
    found = f"{name} is {', '.join(addresses)}"
    if several and not named and all(ipaddress.ip_address(each.partition("%")[0]).is_loopback for each in addresses):
        why = "gloo tells the other nodes this address, where each of them finds only itself: they wait for ever"
        yield Finding("host name", "fail", found, why, remedy)
    elif several and not named and own and not set(addresses) & set(own):
        why = "gloo tells the other nodes an address that no interface of this machine has"
        yield Finding("host name", "fail", f"{found}; this machine has {', '.join(own)}", why, remedy)
    else:
        yield Finding("host name", "ok", found)


def master_address(plan: Plan, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Whether MASTER_ADDR, where it is set, leads anywhere, and for several nodes not to each of them itself."""
    given = environ.get("MASTER_ADDR", "")
    if not given:
        return
    remedy = "export MASTER_ADDR=$(getent hosts FIRST_NODE | cut -d' ' -f1)  # an address that all nodes reach"
    try:
        addresses = sorted({str(place[4][0]) for place in socket.getaddrinfo(given, None)})
    except OSError as error:
        why = "all processes look there for the first one: they wait until they give up"
        yield Finding("master address", "fail", f"MASTER_ADDR={given} does not resolve ({error.strerror})", why, remedy)
        return
    found = f"MASTER_ADDR={given}" + ("" if addresses == [given] else f" is {', '.join(addresses)}")
    if (plan.nodes or 1) > 1 and all(ipaddress.ip_address(each.partition("%")[0]).is_loopback for each in addresses):
        why = "it leads back to the machine that asks: the nodes never find each other"
        yield Finding("master address", "fail", f"{found}, with {plan.nodes} nodes", why, remedy)
    else:
        yield Finding("master address", "ok", found)

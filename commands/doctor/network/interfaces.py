"""Lists the network interfaces of this machine, and checks which of them NCCL and gloo choose."""

import re
import socket
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from commands.doctor.check import Finding
from commands.doctor.launch_plan import LaunchPlan

_VIRTUAL = re.compile(r"docker|veth|br-|virbr|cni|flannel|cali|tunl|ifb|dummy")
"""Names of virtual interfaces, which other machines cannot reach."""


class Interface(NamedTuple):
    """A network interface of this machine."""

    name: str
    up: bool
    addresses: tuple[str, ...]
    """Addresses except IPv6 link-local addresses."""

    @property
    def is_loopback(self) -> bool:
        """Whether it is the loopback."""
        loopback = [address.startswith("127.") or address == "::1" for address in self.addresses]
        return self.name == "lo" or (bool(loopback) and all(loopback))

    @property
    def is_external(self) -> bool:
        """Whether it may lead to other machines: it is up, has an address, and is not virtual."""
        return self.up and bool(self.addresses) and not self.is_loopback and not _VIRTUAL.match(self.name)


def present_interfaces() -> list[Interface]:
    """Return the interfaces of this network namespace."""
    import psutil

    states = psutil.net_if_stats()
    return [
        Interface(
            name,
            name in states and states[name].isup,
            tuple(
                address.address.partition("%")[0]
                for address in addresses
                if address.family in (socket.AF_INET, socket.AF_INET6) and not address.address.startswith("fe80")
            ),
        )
        for name, addresses in psutil.net_if_addrs().items()
    ]


def check_interfaces(
    plan: LaunchPlan, environ: Mapping[str, str], present: Iterable[Interface], routes: Path = Path("/proc/net/route")
) -> Iterator[Finding]:
    """Check that the interfaces in the variables exist, or that the choice is unambiguous without them.

    Args:
        plan: number of nodes.
        environ: environment variables, of which NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME are read.
        present: interfaces of this machine.
        routes: routing table of the kernel, for the interface of the default route.
    """
    interfaces = list(present)
    candidates = [interface for interface in interfaces if interface.is_external]
    best = _preferred_interface(candidates, routes)
    several = (plan.nodes or 1) > 1
    names_by_variable: dict[str, set[str]] = {}
    for variable, choose in (("NCCL_SOCKET_IFNAME", _nccl_choice), ("GLOO_SOCKET_IFNAME", _gloo_choice)):
        value = environ.get(variable, "").strip()
        if value:
            choice = choose(value, interfaces)
            names_by_variable[variable] = {interface.name for interface in choice}
            yield _check_choice(variable, value, choice, interfaces, best, several)
    if len(names_by_variable) == 2 and several and not set.intersection(*names_by_variable.values()):
        found = " and ".join(f"{name}={environ[name]}" for name in names_by_variable)
        why = "NCCL and gloo use different networks: if either is slow or cut, all ranks wait"
        yield Finding("interfaces", "warn", f"{found} name different interfaces", why, _export(best))
    if names_by_variable:
        return
    listed = ", ".join(map(_name_with_address, candidates)) or "none that leads to other machines"
    if several and not candidates:
        why = "the other nodes cannot be reached"
        remedy = "ip address; ip link set NAME up  # or docker run --network=host"
        yield Finding("interfaces", "fail", listed, why, remedy)
    elif several and len(candidates) > 1:
        why = "NCCL and gloo choose an interface themselves, perhaps another on each node: the ranks then hang"
        yield Finding("interfaces", "warn", f"{listed}: several, and none is chosen", why, _export(best))
    else:
        yield Finding("interfaces", "ok", listed)


def _check_choice(
    variable: str, value: str, choice: list[Interface], interfaces: list[Interface], best: str, several: bool
) -> Finding:
    setting = f"{variable}={value}"
    remedy = f"export {variable}={best}" if best else f"unset {variable}"
    if not choice:
        found = f"{setting} names none of {', '.join(interface.name for interface in interfaces)}"
        if variable.startswith("GLOO") and value[0] in "=^":
            found += f" (gloo takes plain names; {value[0]!r} is NCCL's notation)"
        ending = "`Unable to find address for`" if variable.startswith("GLOO") else "`no socket interface found`"
        return Finding("interfaces", "fail", found, f"the start ends with {ending}", remedy)
    down = [interface.name for interface in choice if not interface.up]
    without = [interface.name for interface in choice if not interface.addresses]
    if len(down) == len(choice) or len(without) == len(choice):
        state = "is down" if down else "has no address"
        found = f"{setting}: {', '.join(down or without)} {state}"
        return Finding("interfaces", "fail", found, "no data can be sent over it", remedy)
    if several and all(interface.is_loopback for interface in choice):
        found = f"{setting} leads back to this machine"
        return Finding("interfaces", "fail", found, "the other nodes are not reached", remedy)
    usable = [interface for interface in choice if interface.up and interface.addresses]
    return Finding("interfaces", "ok", f"{setting}: {', '.join(map(_name_with_address, usable))}")


def _name_with_address(interface: Interface) -> str:
    return f"{interface.name} ({interface.addresses[0]})"


def _nccl_choice(value: str, interfaces: list[Interface]) -> list[Interface]:
    """Return the interfaces in NCCL's notation: prefixes separated by commas; `=`: full names; `^`: all but these."""
    excludes = value.startswith("^")
    value = value.removeprefix("^")
    exact = value.startswith("=")
    names = [name.strip() for name in value.removeprefix("=").split(",") if name.strip()]

    def matches(interface: Interface) -> bool:
        return any(interface.name == name if exact else interface.name.startswith(name) for name in names)

    return [interface for interface in interfaces if matches(interface) != excludes]


def _gloo_choice(value: str, interfaces: list[Interface]) -> list[Interface]:
    """Return the interfaces in gloo's notation: names separated by commas, all of which must exist."""
    names = [name.strip() for name in value.split(",")]
    choice = [interface for name in names for interface in interfaces if interface.name == name]
    return choice if len(choice) == len(names) else []


def _preferred_interface(candidates: list[Interface], routes: Path) -> str:
    """Return the preferred interface: InfiniBand, as NCCL does, then the interface of the default route."""
    names = [interface.name for interface in candidates]
    lines = routes.read_text().splitlines()[1:] if routes.exists() else []
    default = [line.split()[0] for line in lines if line.split()[1:2] == ["00000000"]]
    order = [name for name in names if name.startswith("ib")] + [name for name in default if name in names] + names
    return order[0] if order else ""


def _export(best: str) -> str:
    return f"export NCCL_SOCKET_IFNAME={best} GLOO_SOCKET_IFNAME={best}  # on every node, its own name"

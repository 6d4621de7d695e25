"""Network interfaces: which there are, and whether NCCL and gloo are told to use one that leads to the other nodes."""

import re
import socket
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from commands.doctor.finding import Finding
from commands.doctor.plan import Plan

_VIRTUAL = re.compile(r"docker|veth|br-|virbr|cni|flannel|cali|tunl|ifb|dummy")
"""Names that programs give to interfaces which end within the machine."""


class Interface(NamedTuple):
    """A network interface of this machine."""

    name: str
    up: bool
    addresses: tuple[str, ...]
    """Those that other machines could use: without the link-local ones of IPv6."""

    @property
    def loops_back(self) -> bool:
        own = [address.startswith("127.") or address == "::1" for address in self.addresses]
        return self.name == "lo" or (bool(own) and all(own))

    @property
    def leads_out(self) -> bool:
        return self.up and bool(self.addresses) and not self.loops_back and not _VIRTUAL.match(self.name)


def present_interfaces() -> list[Interface]:
    """Those of this machine (of this network namespace)."""
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


def interfaces(
    plan: Plan, environ: Mapping[str, str], present: Iterable[Interface], routes: Path = Path("/proc/net/route")
) -> Iterator[Finding]:
    """Whether the interfaces that are named are there, and whether one should be named.

    Args:
        plan: how many nodes there are.
        environ: of which NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME are read.
        present: the machine's interfaces.
        routes: the kernel's table, for the interface that leads to everywhere.
    """
    there = list(present)
    candidates = [interface for interface in there if interface.leads_out]
    best = _best(candidates, routes)
    several = (plan.nodes or 1) > 1
    named: dict[str, set[str]] = {}
    for variable, chosen in (("NCCL_SOCKET_IFNAME", _nccl_choice), ("GLOO_SOCKET_IFNAME", _gloo_choice)):
        value = environ.get(variable, "").strip()
        if value:
            choice = chosen(value, there)
            named[variable] = {interface.name for interface in choice}
            yield _judged(variable, value, choice, there, best, several)
    if len(named) == 2 and several and not set.intersection(*named.values()):
        found = " and ".join(f"{name}={environ[name]}" for name in named)
        why = "weights go over one network and agreements over the other: if one of them is slow or cut, all wait"
        yield Finding("interfaces", "warn", f"{found} name different interfaces", why, _export(best))
    if named:
        return
    words = ", ".join(map(_with_address, candidates)) or "none that leads to other machines"
    if several and not candidates:
        why = "the other nodes cannot be reached"
        remedy = "ip address; ip link set NAME up  # or docker run --network=host"
        yield Finding("interfaces", "fail", words, why, remedy)
    elif several and len(candidates) > 1:
        why = "NCCL and gloo choose by themselves, perhaps differently on each node: they then wait for one another"
        yield Finding("interfaces", "warn", f"{words}: several, and none is chosen", why, _export(best))
    else:
        yield Finding("interfaces", "ok", words)


def _judged(
    variable: str, value: str, choice: list[Interface], there: list[Interface], best: str, several: bool
) -> Finding:
    setting = f"{variable}={value}"
    remedy = f"export {variable}={best}" if best else f"unset {variable}"
    if not choice:
        found = f"{setting} names none of {', '.join(each.name for each in there)}"
        if variable.startswith("GLOO") and value[0] in "=^":
            found += f" (gloo takes plain names; {value[0]!r} is NCCL's notation)"
        ending = "`Unable to find address for`" if variable.startswith("GLOO") else "`no socket interface found`"
        return Finding("interfaces", "fail", found, f"the start ends with {ending}", remedy)
    down = [each.name for each in choice if not each.up]
    without = [each.name for each in choice if not each.addresses]
    if len(down) == len(choice) or len(without) == len(choice):
        state = "is down" if down else "has no address"
        found = f"{setting}: {', '.join(down or without)} {state}"
        return Finding("interfaces", "fail", found, "nothing can be sent over it", remedy)
    if several and all(each.loops_back for each in choice):
        found = f"{setting} leads back to this machine"
        return Finding("interfaces", "fail", found, "the other nodes are not reached", remedy)
    usable = [each for each in choice if each.up and each.addresses]
    return Finding("interfaces", "ok", f"{setting}: {', '.join(map(_with_address, usable))}")


def _with_address(interface: Interface) -> str:
    return f"{interface.name} ({interface.addresses[0]})"


def _nccl_choice(value: str, there: list[Interface]) -> list[Interface]:
    """NCCL's notation: prefixes with commas between; `=` before them: whole names; `^` before all: all but these."""
    excludes = value.startswith("^")
    value = value.removeprefix("^")
    exact = value.startswith("=")
    names = [name.strip() for name in value.removeprefix("=").split(",") if name.strip()]

    def matches(interface: Interface) -> bool:
        return any(interface.name == name if exact else interface.name.startswith(name) for name in names)

    return [each for each in there if matches(each) != excludes]


def _gloo_choice(value: str, there: list[Interface]) -> list[Interface]:
    """Gloo's notation: names with commas between, all of which have to be there."""
    names = [name.strip() for name in value.split(",")]
    found = [each for name in names for each in there if each.name == name]
    return found if len(found) == len(names) else []


def _best(candidates: list[Interface], routes: Path) -> str:
    """InfiniBand's first, as NCCL has it; then the one that leads to everywhere else."""
    names = [interface.name for interface in candidates]
    lines = routes.read_text().splitlines()[1:] if routes.exists() else []
    default = [line.split()[0] for line in lines if line.split()[1:2] == ["00000000"]]
    order = [name for name in names if name.startswith("ib")] + [name for name in default if name in names] + names
    return order[0] if order else ""


def _export(best: str) -> str:
    return f"export NCCL_SOCKET_IFNAME={best} GLOO_SOCKET_IFNAME={best}  # on every node, its own name"

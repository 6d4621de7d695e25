"""Checks the rendezvous port: free, permitted, and not ephemeral."""

import errno
import socket
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

from commands.doctor.check import Finding
from commands.doctor.launch_plan import LaunchPlan

_TORCHRUN = 29500
"""Default port of torchrun."""
_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")


def check_port(plan: LaunchPlan, environ: Mapping[str, str], ephemeral: Path = _EPHEMERAL) -> Iterator[Finding]:
    """Check whether rank 0 can listen on MASTER_PORT, else on the default port of torchrun.

    Args:
        plan: number of nodes.
        environ: environment variables.
        ephemeral: file with the first and the last ephemeral port.
    """
    port_text = environ.get("MASTER_PORT", "")
    if "RANK" in environ or "SLURM_STEP_ID" in environ:
        return  # the launcher or rank 0 listens already; the rendezvous is another check
    if port_text and not (port_text.isdigit() and 0 < int(port_text) < 65536):
        yield Finding("port", "fail", f"MASTER_PORT={port_text!r}", "a port is a number from 1 to 65535",
                      f"export MASTER_PORT={_free_port()}")  # fmt: skip
        return
    number = int(port_text or _TORCHRUN)
    name = f"MASTER_PORT={port_text}" if port_text else f"{_TORCHRUN} (torchrun's default)"
    address = environ.get("MASTER_ADDR", "")
    if address and not is_of_this_machine(address):
        yield Finding("port", "ok", f"{name} must be free on {address}, which is another machine")
        return
    error = _refusal(number)
    if error is None:
        yield from _found_free(number, name, plan, port_text, ephemeral)
    elif error.errno == errno.EACCES:
        yield Finding("port", "fail", f"{name}: {error.strerror}", "ports below 1024 require administrator rights",
                      f"export MASTER_PORT={_free_port()}")  # fmt: skip
    else:
        why = "rank 0 listens there: it would end with `Address already in use`"
        remedy = f"export MASTER_PORT={_free_port()}" if port_text else f"torchrun --master_port {_free_port()} ..."
        owner, pid = _owner(number)
        remedy += f"  # or end it, if it is a run that hangs: kill {pid}" if pid else ""
        # Without MASTER_PORT Lightning's own launcher chooses a free port.
        yield Finding("port", "fail" if port_text else "warn", f"{name} is taken by {owner}", why, remedy)


def _found_free(number: int, name: str, plan: LaunchPlan, port_text: str, ephemeral: Path) -> Iterator[Finding]:
    bounds = ephemeral.read_text().split() if ephemeral.exists() else []
    if port_text and len(bounds) == 2 and int(bounds[0]) <= number <= int(bounds[1]) and (plan.nodes or 1) > 1:
        why = "another program may have taken it when the training starts"
        found = f"{name} is free, but ports from {bounds[0]} to {bounds[1]} are ephemeral"
        yield Finding("port", "warn", found, why, f"export MASTER_PORT={_TORCHRUN}")
    else:
        yield Finding("port", "ok", f"{name} is free")


def is_of_this_machine(address: str) -> bool:
    """Return whether a name or address is this machine's, so that a socket can be bound to it."""
    try:
        socket_addresses = socket.getaddrinfo(address, 0, type=socket.SOCK_STREAM)
    except OSError:
        return False
    for family, kind, protocol, _, socket_address in socket_addresses:
        try:
            with closing(socket.socket(family, kind, protocol)) as probe:
                probe.bind(socket_address)
                return True
        except OSError:
            continue
    return False


def _refusal(number: int) -> OSError | None:
    """Return why no process can listen on the port on all addresses, as torch's store does; None if it can."""
    try:
        with closing(socket.socket(socket.AF_INET, socket.SOCK_STREAM)) as probe:
            # The store sets this option, too: a connection in TIME_WAIT does not block the port.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("", number))
            probe.listen(1)
    except OSError as error:
        return error
    return None


def _owner(number: int) -> tuple[str, int | None]:
    """Return a description of the listening process and its id; only root sees processes of other users."""
    import psutil

    try:
        for connection in psutil.net_connections("tcp"):
            if connection.status != psutil.CONN_LISTEN or not connection.laddr or not connection.pid:
                continue
            if connection.laddr.port == number:
                process = psutil.Process(connection.pid)
                command = " ".join(process.cmdline())[:80]
                return f"process {connection.pid} of {process.username()} ({command})", connection.pid
    except psutil.Error:
        pass
    return "a process of another user or another container", None


def _free_port() -> int:
    """Return a free port below the ephemeral ports."""
    return next((number for number in range(_TORCHRUN + 1, _TORCHRUN + 500) if _refusal(number) is None), 12345)

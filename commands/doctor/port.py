"""The port at which the processes of a team meet: free, allowed, and not one that the system gives away."""

import errno
import socket
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

from commands.doctor.finding import Finding
from commands.doctor.plan import Plan

_TORCHRUN = 29500
"""Where torchrun meets unless it is told."""
_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")


def port(plan: Plan, environ: Mapping[str, str], ephemeral: Path = _EPHEMERAL) -> Iterator[Finding]:
    """Whether MASTER_PORT, or else torchrun's own choice, can be listened on.

    Args:
        plan: how many nodes there are.
        environ: of which MASTER_ADDR, MASTER_PORT and the launcher's variables are read.
        ephemeral: the file with the first and the last port that connections get by themselves.
    """
    given = environ.get("MASTER_PORT", "")
    if "RANK" in environ or "SLURM_STEP_ID" in environ:
        return  # the launcher or the first process listens there already; whether they meet is another check
    if given and not (given.isdigit() and 0 < int(given) < 65536):
        yield Finding("port", "fail", f"MASTER_PORT={given!r}", "a port is a number from 1 to 65535: nobody can meet",
                      f"export MASTER_PORT={_free_port()}")  # fmt: skip
        return
    number, name = int(given or _TORCHRUN), f"MASTER_PORT={given}" if given else f"{_TORCHRUN} (torchrun's own choice)"
    address = environ.get("MASTER_ADDR", "")
    if address and not is_of_this_machine(address):
        yield Finding("port", "ok", f"{name} is to be free on {address}, which is another machine")
        return
    error = _refusal(number)
    if error is None:
        yield from _found_free(number, name, plan, given, ephemeral)
    elif error.errno == errno.EACCES:
        yield Finding("port", "fail", f"{name}: {error.strerror}", "ports below 1024 are the administrator's",
                      f"export MASTER_PORT={_free_port()}")  # fmt: skip
    else:
        why = "the first process listens there for all others: it would end with `Address already in use`"
        remedy = f"export MASTER_PORT={_free_port()}" if given else f"torchrun --master_port {_free_port()} ..."
        who = _owner(number)
        remedy += f"  # or end it, if it is a run that hangs: kill {who[1]}" if who[1] else ""
        # Where nobody has chosen the port, Lightning's own launcher looks for a free one.
        yield Finding("port", "fail" if given else "warn", f"{name} is taken by {who[0]}", why, remedy)


def _found_free(number: int, name: str, plan: Plan, given: str, ephemeral: Path) -> Iterator[Finding]:
    bounds = ephemeral.read_text().split() if ephemeral.exists() else []
    if given and len(bounds) == 2 and int(bounds[0]) <= number <= int(bounds[1]) and (plan.nodes or 1) > 1:
        why = "another program may have it by chance at the moment of the start"
        found = f"{name} is free, but connections get ports from {bounds[0]} to {bounds[1]} by themselves"
        yield Finding("port", "warn", found, why, f"export MASTER_PORT={_TORCHRUN}")
    else:
        yield Finding("port", "ok", f"{name} is free")


def is_of_this_machine(address: str) -> bool:
    """Whether a name or number leads here: only then something can be bound to it."""
    try:
        places = socket.getaddrinfo(address, 0, type=socket.SOCK_STREAM)
    except OSError:
        return False
    for family, kind, protocol, _, place in places:
        try:
            with closing(socket.socket(family, kind, protocol)) as trial:
                trial.bind(place)
                return True
        except OSError:
            continue
    return False


def _refusal(number: int) -> OSError | None:
    """Why it cannot be listened on, on any address, as torch's store does."""
    try:
        with closing(socket.socket(socket.AF_INET, socket.SOCK_STREAM)) as trial:
            # As the store: what is left of a connection that has just ended is in nobody's way.
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind(("", number))
            trial.listen(1)
    except OSError as error:
        return error
    return None


def _owner(number: int) -> tuple[str, int | None]:
    """Who listens there, and its process id; only root sees those of others."""
    import psutil

    try:
        for connection in psutil.net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN and connection.laddr.port == number and connection.pid:
                process = psutil.Process(connection.pid)
                command = " ".join(process.cmdline())[:80]
                return f"process {connection.pid} of {process.username()} ({command})", connection.pid
    except psutil.Error:
        pass
    return "a process that cannot be seen from here (another user's, or another container's)", None


def _free_port() -> int:
    """One below those that the system gives away by itself."""
    return next((number for number in range(_TORCHRUN + 1, _TORCHRUN + 500) if _refusal(number) is None), 12345)

"""Two machines on one: network namespaces with a cable between them whose bandwidth and delay are set.

It takes Linux, root and iproute2. A cable with a delay is a process that carries frames (delayed_cable.py), because
Linux's own delay, `tc netem`, is left out of many kernels.
"""

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

from engine.cores import usable_cores

_NAMESPACES = Path("/run/netns")
_PREFIX = "lockstep-"
_CLONE_NEWNET = 0x40000000  # of linux/sched.h
BURST = 72_000
"""Bytes that a limited machine which was silent sends at once: one of TCP's largest segments with the headers of its
frames, as less would have the limiter take segments apart. They are 2 % of the gradients that a step here sends."""
_LARGEST_FRAME = 65000
"""Bytes of a frame on the cable that is a process, so that there are few to carry."""


class Impossible(RuntimeError):
    """There can be no such machines here; says why."""


@contextmanager
def connected(delayed: bool = False) -> Iterator["Machines"]:
    """Two machines that are gone afterwards, also when this process is asked to end (SIGINT, SIGTERM).

    Raises:
        Impossible: not on this system, not for this user, or not at two machines' speed.
    """
    machines, before = Machines(), {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if why := machines.connect(delayed) or too_few_cores():
            raise Impossible(why)
        try:  # known before minutes of measuring
            machines.limit(1e9)
            machines.limit(None)
        except RuntimeError as error:
            raise Impossible(f"no limit of the bandwidth here: {error}") from error
        yield machines
    finally:
        for number in before:  # impatience must not leave half of them
            signal.signal(number, signal.SIG_IGN)
        machines.close()
        for number, handler in before.items():
            signal.signal(number, handler)


class Machines:
    """Two network namespaces, each with an `eth0` that leads to the other."""

    def __init__(self) -> None:
        self.names = [f"{_PREFIX}{os.getpid()}-{number}" for number in (0, 1)]
        self.addresses = ["10.233.77.1", "10.233.77.2"]
        self.processes: list[subprocess.Popen[bytes]] = []
        self._cable: tuple[BaseProcess, Connection] | None = None

    def connect(self, delayed: bool = False) -> str | None:
        """Returns why it is not possible here, or None.

        Args:
            delayed: with a cable that has a delay, which `delay` sets; it is 0 until then.
        """
        if why := impossible(delayed):
            return why
        _remove_those_of_the_dead()
        for name in self.names:
            made = _run("ip", "netns", "add", name)
            if made.returncode:
                return f"no network namespaces here: {made.stderr.strip()}"
        why = self._carry() if delayed else self._virtual_cable()
        if why:
            return why
        for name, address in zip(self.names, self.addresses, strict=True):
            for command in (
                ["addr", "add", f"{address}/24", "dev", "eth0"],
                ["link", "set", "lo", "up"],
                ["link", "set", "eth0", "up"],
                *([["link", "set", "eth0", "mtu", str(_LARGEST_FRAME)]] if delayed else []),
            ):
                result = _run("ip", "-n", name, *command)
                if result.returncode:
                    return f"ip {' '.join(command)}: {result.stderr.strip()}"
        return None

    def _virtual_cable(self) -> str | None:
        cable = [f"lk{os.getpid() % 100000}{end}" for end in "ab"]
        made = _run("ip", "link", "add", cable[0], "type", "veth", "peer", "name", cable[1])
        if made.returncode:
            return f"no virtual cable here: {made.stderr.strip()}"
        for name, end in zip(self.names, cable, strict=True):
            for command in (["link", "set", end, "netns", name], ["-n", name, "link", "set", end, "name", "eth0"]):
                _checked("ip", *command)
        return None

    def _carry(self) -> str | None:
        from benchmarks.network.delayed_cable import carry

        spawn = get_context("spawn")
        connection, remote = spawn.Pipe()
        process = spawn.Process(target=carry, args=(remote, self.names), daemon=True)
        process.start()
        self._cable = process, connection
        remote.close()
        try:
            return connection.recv()
        except EOFError:
            return "the process that is the cable has ended; its error is above"

    def link(self, state: str) -> None:
        """`down` cuts the cable, `up` mends it."""
        _checked("ip", "-n", self.names[1], "link", "set", "eth0", state)

    def limit(self, bandwidth: float | None) -> None:
        """Bits a second that either machine can send, headers included; None: what the machine can do."""
        for name in self.names:
            if "tbf" in _checked("tc", "-n", name, "qdisc", "show", "dev", "eth0"):
                _checked("tc", "-n", name, "qdisc", "del", "dev", "eth0", "root")
            if bandwidth:
                # Late timers cost no bandwidth if a burst lasts 0.2 ms; so long a queue that TCP's window fits.
                burst = max(BURST, int(bandwidth / 8 * 0.0002))
                rate = ["rate", f"{bandwidth:.0f}bit", "burst", str(burst), "limit", str(burst + (16 << 20))]
                _checked("tc", "-n", name, "qdisc", "add", "dev", "eth0", "root", "tbf", *rate)

    def delay(self, seconds: float) -> None:
        """How long each frame is under way from now on, in either direction, on a cable that is `delayed`."""
        assert self._cable, "this cable has no delay: connect(delayed=True)"
        self._cable[1].send(seconds)

    def sent(self, machine: int) -> int:
        """Bytes that machine 0 or 1 has put on the cable."""
        shown = json.loads(_checked("ip", "-n", self.names[machine], "-s", "-j", "link", "show", "dev", "eth0"))
        return int(shown[0]["stats64"]["tx"]["bytes"])

    def start(self, machine: int, command: Sequence[str], folder: Path, log: Path, **more: str) -> None:
        """A process on machine 0 or 1, in `folder`, that writes to `log`; `more` environment variables."""
        environment: Mapping[str, str] = {**os.environ, "GLOO_SOCKET_IFNAME": "eth0", **more}
        with log.open("w") as output:
            self.processes.append(
                subprocess.Popen(
                    ["ip", "netns", "exec", self.names[machine], *command],
                    cwd=folder, env=environment, stdout=output, stderr=output, start_new_session=True,
                )  # fmt: skip
            )

    def close(self) -> None:
        """Ends all processes on both machines and removes the machines; also after half a `connect`."""
        if shutil.which("ip") is None:
            return
        for name in self.names:
            for pid in _run("ip", "netns", "pids", name).stdout.split():
                with suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
        for process in self.processes:
            process.wait(30)
        if self._cable:
            self._cable[0].kill()
            self._cable[0].join()
            self._cable[1].close()
        for name in self.names:
            _run("ip", "netns", "del", name)


def impossible(delayed: bool = False) -> str | None:
    """Why there can be no machines here, or None."""
    if not sys.platform.startswith("linux") or os.geteuid() or shutil.which("ip") is None or shutil.which("tc") is None:
        return "network namespaces take Linux, root and iproute2's ip and tc"
    if delayed and not Path("/dev/net/tun").exists():
        return "a cable with a delay takes /dev/net/tun"
    return None


def too_few_cores() -> str | None:
    """Why two trainings here would only take each other's time, or None."""
    usable = usable_cores()
    return None if usable >= 2 else f"two machines take a core each, and this process may use {usable:g}"


def enter(name: str) -> None:
    """This thread, and those that it starts, are on that machine from now on.

    Raises:
        OSError: there is no such machine, or this process may not.
    """
    with (_NAMESPACES / name).open() as namespace:
        if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), _CLONE_NEWNET):
            number = ctypes.get_errno()
            raise OSError(number, f"cannot enter the network namespace {name}: {os.strerror(number)}")


def _remove_those_of_the_dead() -> None:
    """Namespaces outlive a process that was killed with SIGKILL, which could not remove them."""
    for path in _NAMESPACES.glob(f"{_PREFIX}*-[01]"):
        owner = path.name.removeprefix(_PREFIX)[:-2]
        if owner.isdigit() and not Path("/proc", owner).exists():
            _run("ip", "netns", "del", path.name)


def _run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, capture_output=True, text=True, timeout=30)


def _checked(*words: str) -> str:
    """What the command printed.

    Raises:
        RuntimeError: with the command and what it said.
    """
    result = _run(*words)
    if result.returncode:
        raise RuntimeError(f"{' '.join(words)}: {result.stderr.strip() or result.returncode}")
    return result.stdout

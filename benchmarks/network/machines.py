"""Simulates two machines on this machine: network namespaces and a cable between them with a given bandwidth and delay.

It needs Linux, root and iproute2. A cable with a delay is a process that carries frames (delayed_link.py), because
many kernels do not have Linux's own delay, `tc netem`.
"""

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

from benchmarks.network.delayed_link import carry
from benchmarks.network.namespaces import NAMESPACES
from engine.system.cpu_count import available_cpus

_PREFIX = "lockstep-"
BURST = 72_000
"""Bytes that an idle machine with a limit sends at once: one of TCP's largest segments with the headers of its frames,
because with less the limiter would split segments. They are 2 % of the gradients of a step.
"""
_LARGEST_FRAME = 65000
"""Bytes of a frame on the delayed cable, large so that there are few frames to carry."""


class UnsupportedMachineError(RuntimeError):
    """Raised if such machines cannot be created here, with the reason."""


@contextmanager
def connected(delayed: bool = False) -> Iterator["Machines"]:
    """Yield two machines, and remove them afterwards, also after SIGINT or SIGTERM.

    Raises:
        UnsupportedMachineError: not on this system, not for this user, or too few cores.
    """
    machines, before = Machines(), {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if why := machines.connect(delayed) or too_few_cores():
            raise UnsupportedMachineError(why)
        try:  # reported before minutes of measurement
            machines.limit(1e9)
            machines.limit(None)
        except RuntimeError as error:
            raise UnsupportedMachineError(f"no limit of the bandwidth here: {error}") from error
        yield machines
    finally:
        for number in before:  # a second signal must not interrupt the removal
            signal.signal(number, signal.SIG_IGN)
        machines.close()
        for number, handler in before.items():
            signal.signal(number, handler)


class Machines:
    """Two network namespaces, each with an `eth0` that is connected to the other."""

    def __init__(self) -> None:
        self.names = [f"{_PREFIX}{os.getpid()}-{number}" for number in (0, 1)]
        self.addresses = ["10.233.77.1", "10.233.77.2"]
        self.processes: list[subprocess.Popen[bytes]] = []
        self._cable: tuple[BaseProcess, Connection] | None = None

    def connect(self, delayed: bool = False) -> str | None:
        """Connect the machines. Return the reason if it is not possible, or None.

        Args:
            delayed: use a cable whose delay is set by `delay`; it is 0 until then.
        """
        if why := impossible(delayed):
            return why
        # A namespace outlives its processes, so a killed benchmark leaves its own behind.
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
        # Linux limits names of interfaces to 15 characters.
        cable = [f"lk{os.getpid() % 100000}{end}" for end in "ab"]
        made = _run("ip", "link", "add", cable[0], "type", "veth", "peer", "name", cable[1])
        if made.returncode:
            return f"no virtual cable here: {made.stderr.strip()}"
        for name, end in zip(self.names, cable, strict=True):
            for command in (["link", "set", end, "netns", name], ["-n", name, "link", "set", end, "name", "eth0"]):
                _checked("ip", *command)
        return None

    def _carry(self) -> str | None:
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
        """Set the cable `up` or `down`."""
        _checked("ip", "-n", self.names[1], "link", "set", "eth0", state)

    def limit(self, bandwidth: float | None) -> None:
        """Limit the bits per second that each machine can send, including headers; None: no limit."""
        for name in self.names:
            if "tbf" in _checked("tc", "-n", name, "qdisc", "show", "dev", "eth0"):
                _checked("tc", "-n", name, "qdisc", "del", "dev", "eth0", "root")
            if bandwidth:
                # Late timers cost no bandwidth if a burst lasts 0.2 ms. The queue is long enough for TCP's window.
                burst = max(BURST, int(bandwidth / 8 * 0.0002))
                rate = ["rate", f"{bandwidth:.0f}bit", "burst", str(burst), "limit", str(burst + (16 << 20))]
                _checked("tc", "-n", name, "qdisc", "add", "dev", "eth0", "root", "tbf", *rate)

    def delay(self, seconds: float) -> None:
        """Set the delay in seconds of each frame, in both directions, on a cable that is `delayed`."""
        assert self._cable, "this cable has no delay: connect(delayed=True)"
        self._cable[1].send(seconds)

    def sent(self, machine: int) -> int:
        """Return the bytes that machine 0 or 1 has sent."""
        shown = json.loads(_checked("ip", "-n", self.names[machine], "-s", "-j", "link", "show", "dev", "eth0"))
        return int(shown[0]["stats64"]["tx"]["bytes"])

    def start(self, machine: int, command: Sequence[str], folder: Path, log: Path, **more: str) -> None:
        """Start a process on machine 0 or 1 in `folder`; it writes to `log`. `more` are environment variables."""
        environment: Mapping[str, str] = {**os.environ, "GLOO_SOCKET_IFNAME": "eth0", **more}
        with log.open("w") as output:
            # It gets its own session, so that Ctrl-C reaches the benchmark alone, which ends the machines in order.
            self.processes.append(
                subprocess.Popen(
                    ["ip", "netns", "exec", self.names[machine], *command],
                    cwd=folder,
                    env=environment,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                )
            )

    def close(self) -> None:
        """End all processes on both machines and remove the machines, also after an incomplete `connect`."""
        if shutil.which("ip") is None:
            return
        for name in self.names:
            # All processes of the namespace, also those that a training has started.
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
    """Return the reason why machines cannot be created here, or None."""
    if not sys.platform.startswith("linux") or os.geteuid() or shutil.which("ip") is None or shutil.which("tc") is None:
        return "network namespaces take Linux, root and iproute2's ip and tc"
    if delayed and not Path("/dev/net/tun").exists():
        return "a cable with a delay takes /dev/net/tun"
    return None


def too_few_cores() -> str | None:
    """Return the reason why two trainings would compete for the same cores, or None."""
    usable = available_cpus()
    return None if usable >= 2 else f"two machines take a core each, and this process may use {usable:g}"


def _remove_those_of_the_dead() -> None:
    """Remove namespaces of processes that were killed with SIGKILL and could not remove them."""
    for path in NAMESPACES.glob(f"{_PREFIX}*-[01]"):
        owner = path.name.removeprefix(_PREFIX)[:-2]
        if owner.isdigit() and not Path("/proc", owner).exists():
            _run("ip", "netns", "del", path.name)


def _run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, capture_output=True, text=True, timeout=30)


def _checked(*words: str) -> str:
    """Return the output of a command.

    Raises:
        RuntimeError: it failed; with the command and its output.
    """
    result = _run(*words)
    if result.returncode:
        raise RuntimeError(f"{' '.join(words)}: {result.stderr.strip() or result.returncode}")
    return result.stdout

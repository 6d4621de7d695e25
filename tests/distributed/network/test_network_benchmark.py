"""The network benchmark on two hosts: its emulated link, a training over it, and what it cleans up."""

import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.network.machines import Machines, UnsupportedMachineError, connected, impossible, too_few_cores
from benchmarks.network.measurements import SETTINGS, Network, bandwidth, settings
from benchmarks.network.namespaces import enter
from benchmarks.network.tables import table
from benchmarks.network.training import gradient_bytes

pytestmark = [pytest.mark.slow, pytest.mark.benchmark, pytest.mark.timeout(900)]


def seconds_for(machines: Machines, size: int) -> float:
    """Return the seconds from sending `size` bytes to the answer of the other machine."""
    taken = []

    def answer() -> None:
        enter(machines.names[1])
        with socket.create_server((machines.addresses[1], 5000)) as server:
            listening.set()
            connection, _ = server.accept()
            with connection:
                left = size
                while left:
                    left -= len(connection.recv(min(left, 1 << 20)))
                connection.sendall(b".")

    def ask() -> None:
        enter(machines.names[0])
        with socket.create_connection((machines.addresses[1], 5000), timeout=60) as connection:
            began = time.perf_counter()
            connection.sendall(bytes(size))
            assert connection.recv(1) == b"."
            taken.append(time.perf_counter() - began)

    listening = threading.Event()
    threads = [threading.Thread(target=answer), threading.Thread(target=ask)]
    threads[0].start()
    assert listening.wait(60)
    threads[1].start()
    for thread in threads:
        thread.join(60)
    return taken[0]


def test_a_limited_cable_takes_its_time_and_counts_what_is_sent(machines):
    before = machines.sent(0)
    machines.limit(40e6)
    assert seconds_for(machines, 2_000_000) > 0.8 * 8 * 2_000_000 / 40e6  # a burst is free
    assert 1.0 < (machines.sent(0) - before) / 2_000_000 < 1.1


def test_namespaces_of_a_killed_process_are_removed(machines):
    killed = subprocess.Popen([sys.executable, "-c", ""])
    killed.wait()
    left = Path("/run/netns", f"lockstep-{killed.pid}-0")
    subprocess.run(["ip", "netns", "add", left.name], check=True, timeout=30)
    machines.close()
    assert machines.connect() is None
    assert not left.exists()
    assert all(Path("/run/netns", name).exists() for name in machines.names)


def test_a_delayed_cable_takes_its_time_both_ways():
    if why := impossible(delayed=True):
        pytest.skip(why)
    machines = Machines()
    try:
        why = machines.connect(delayed=True)
        if why:
            pytest.skip(why)
        machines.delay(0.05)
        assert seconds_for(machines, 1) >= 0.1
    finally:
        machines.close()


@pytest.mark.parametrize("lacks", ["the speed of two", "a limit"])
def test_machines_with_misleading_measurements_are_refused(lacks, monkeypatch):
    if why := impossible():
        pytest.skip(why)
    cpus = 1.0 if lacks == "the speed of two" else 2.0
    monkeypatch.setattr("benchmarks.network.machines.available_cpus", lambda: cpus)
    if lacks == "a limit":

        def limit(self, bandwidth):
            raise RuntimeError("Error: Specified qdisc kind is unknown.")

        monkeypatch.setattr(Machines, "limit", limit)
    with pytest.raises(UnsupportedMachineError, match="a core each.* use 1|qdisc kind is unknown"), connected():
        raise AssertionError("not refused")
    assert not list(Path("/run/netns").glob(f"lockstep-{os.getpid()}-*"))


@pytest.mark.usefixtures("forked_variants")
def test_two_machines_train_on_several_bandwidths(capsys):
    if why := impossible() or too_few_cores():
        pytest.skip(why)
    networks = [Network(None), Network(2e9, held_out=True), Network(20e6)]
    result = bandwidth(repeats=1, networks=networks, steps=2)
    free, _, slow = result["rows"]
    assert 1.0 < result["sent_over_ring"] < 1.1
    assert slow["seconds"][0] > 0.8 * 8 * gradient_bytes() / 20e6
    assert free["seconds"][0] < slow["seconds"][0]
    # On busy cores a step takes longer than its bytes do; it is never faster.
    assert 0.8 < result["model"]["bytes"] / gradient_bytes() < 2
    Console(width=140).print(table(result))
    assert "20 Mbit/s" in capsys.readouterr().out


@pytest.mark.usefixtures("forked_variants")
def test_sixteen_bits_are_half_the_bytes():
    """A hook that is never called sends them all: Lightning registers `ddp_comm_hook` on GPUs alone."""
    if why := impossible() or too_few_cores():
        pytest.skip(why)
    names = [name for name in SETTINGS if "16" in name]
    assert len(names) == 2
    variants = {"whole": (), **{name: SETTINGS[name] for name in names}}
    goals = settings(repeats=1, variants=variants, steps=1)["goals"]
    assert [goal["met"] for goal in goals] == [True, True], goals

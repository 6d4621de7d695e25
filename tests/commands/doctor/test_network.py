"""Tests the checks of port, names and interfaces, with real sockets and the machine's own interfaces."""

import os
import shutil
import socket
import subprocess
import sys

import pytest

from commands.doctor.launch_plan import LaunchPlan
from commands.doctor.network.host_name import check_host_name, check_master_address
from commands.doctor.network.interfaces import Interface, check_interfaces, present_interfaces
from commands.doctor.network.port import check_port
from tests.conftest import REPOSITORY

LO = Interface("lo", True, ("127.0.0.1", "::1"))
ETH0 = Interface("eth0", True, ("10.0.0.5",))
ETH1 = Interface("eth1", True, ("192.168.0.5",))
DOWN = Interface("eth2", False, ("10.9.0.5",))
BARE = Interface("eth3", True, ())
BRIDGE = Interface("docker0", True, ("172.17.0.1",))
ALL = [LO, BRIDGE, ETH0, ETH1, DOWN, BARE]
TWO_NODES = LaunchPlan(nodes=2)


@pytest.fixture
def listener():
    """Somebody else's program on a port."""
    code = "import socket, sys; s = socket.create_server(('', 0)); "
    code += "print(s.getsockname()[1], flush=True); sys.stdin.read()"
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    yield process, int(process.stdout.readline())
    process.stdin.close()
    process.wait(30)
    process.stdout.close()


def test_an_occupied_port_is_reported_with_its_process_and_a_free_port(listener):
    process, number = listener
    (finding,) = check_port(LaunchPlan(), {"MASTER_PORT": str(number)})
    assert finding.status == "fail"
    assert f"MASTER_PORT={number} is taken by process {process.pid} of " in finding.found
    assert "import socket" in finding.found  # a long command line is cut
    assert f"kill {process.pid}" in finding.remedy
    free = int(finding.remedy.split("MASTER_PORT=")[1].split()[0])
    (after,) = check_port(LaunchPlan(), {"MASTER_PORT": str(free)})
    assert (after.status, after.found) == ("ok", f"MASTER_PORT={free} is free")


@pytest.mark.parametrize("port", ["99999", "0", "29500x"])
def test_an_invalid_port_is_reported(port):
    (finding,) = check_port(LaunchPlan(), {"MASTER_PORT": port})
    assert finding.status == "fail"
    assert repr(port) in finding.found


def test_a_port_on_another_machine_and_one_that_the_launcher_serves_are_not_looked_at(listener):
    _, number = listener
    (finding,) = check_port(LaunchPlan(), {"MASTER_PORT": str(number), "MASTER_ADDR": "192.0.2.77"})
    assert finding.status == "ok"
    assert "another machine" in finding.found
    assert list(check_port(LaunchPlan(), {"MASTER_PORT": str(number), "RANK": "0"})) == []


def test_an_ephemeral_port_is_reported_for_several_nodes(tmp_path):
    (tmp_path / "range").write_text("1024\t65535\n")
    with socket.create_server(("", 0)) as server:
        number = server.getsockname()[1]
    (finding,) = check_port(TWO_NODES, {"MASTER_PORT": str(number)}, tmp_path / "range")
    assert finding.status == "warn"
    assert "from 1024 to 65535" in finding.found
    (finding,) = check_port(LaunchPlan(), {"MASTER_PORT": str(number)}, tmp_path / "range")
    assert finding.status == "ok"


def test_a_name_that_does_not_resolve():
    for plan, status in ((LaunchPlan(), "warn"), (TWO_NODES, "fail")):
        (finding,) = check_host_name(plan, {}, "no-such-host.invalid", ALL)
        assert finding.status == status
        assert "does not resolve" in finding.found
        assert "GLOO_SOCKET_IFNAME=eth0" in finding.remedy
        assert "10.0.0.5 no-such-host.invalid" in finding.remedy


def test_a_name_that_leads_back_here_is_wrong_for_several_nodes_alone():
    (finding,) = check_host_name(LaunchPlan(), {}, "127.0.1.1", ALL)
    assert finding.status == "ok"
    (finding,) = check_host_name(TWO_NODES, {}, "127.0.1.1", ALL)
    assert finding.status == "fail"
    assert "each node's own" in finding.why
    (finding,) = check_host_name(TWO_NODES, {"GLOO_SOCKET_IFNAME": "eth0"}, "127.0.1.1", ALL)
    assert finding.status == "ok"  # gloo then does not look at the name


def test_a_host_name_that_leads_to_another_machine_fails_the_check():
    (finding,) = check_host_name(TWO_NODES, {}, "192.0.2.9", ALL)
    assert finding.status == "fail"
    assert "no interface of this machine has" in finding.why


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="a host name of its own takes root")
def test_a_machine_whose_own_name_is_unknown():
    code = "import socket; from commands.doctor import launch_plan\n"
    code += "from commands.doctor.network import host_name, interfaces\n"
    code += "present, plan = interfaces.present_interfaces(), launch_plan.LaunchPlan(nodes=2)\n"
    code += "for f in host_name.check_host_name(plan, {}, socket.gethostname(), present):"
    code += "\n    print(f.status, f.found)"
    inside = f"hostname lockstep-nowhere && exec {sys.executable} -c '{code}'"
    command = ["unshare", "--uts", "sh", "-c", inside]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=REPOSITORY)
    if "unshare failed" in result.stderr:
        pytest.skip(result.stderr)
    assert result.stdout.startswith("fail lockstep-nowhere does not resolve"), result.stderr


def test_a_master_address_that_leads_nowhere_or_back():
    assert list(check_master_address(TWO_NODES, {})) == []
    (finding,) = check_master_address(LaunchPlan(), {"MASTER_ADDR": "no-such-host.invalid"})
    assert finding.status == "fail"
    assert "does not resolve" in finding.found
    (finding,) = check_master_address(TWO_NODES, {"MASTER_ADDR": "localhost"})
    assert finding.status == "fail"
    assert "never find each other" in finding.why
    (finding,) = check_master_address(LaunchPlan(), {"MASTER_ADDR": "127.0.0.1"})
    assert finding.status == "ok"


def test_an_interface_that_this_machine_does_not_have():
    there = present_interfaces()
    assert "lo" in {interface.name for interface in there} or sys.platform != "linux"
    for variable in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        (finding,) = check_interfaces(LaunchPlan(), {variable: "nosuch9"}, there)
        assert finding.status == "fail"
        assert f"{variable}=nosuch9 names none of" in finding.found


def test_gloo_itself_refuses_an_interface_that_is_not_there():
    code = "import torch.distributed as d; d.init_process_group('gloo', store=d.HashStore(), rank=0, world_size=1)"
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "nosuch9"}
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    assert result.returncode
    assert "Unable to find address for: nosuch9" in result.stderr  # as the finding reports


@pytest.mark.parametrize(
    ("variable", "value", "status", "words"),
    [
        ("GLOO_SOCKET_IFNAME", "=eth0", "fail", "'=' is NCCL's notation"),
        ("GLOO_SOCKET_IFNAME", "eth", "fail", "names none of"),
        ("GLOO_SOCKET_IFNAME", "eth0,eth1", "ok", "eth0 (10.0.0.5), eth1 (192.168.0.5)"),
        ("NCCL_SOCKET_IFNAME", "eth", "ok", "eth0 (10.0.0.5), eth1 (192.168.0.5)"),
        ("NCCL_SOCKET_IFNAME", "=eth", "fail", "names none of"),
        ("NCCL_SOCKET_IFNAME", "^lo,docker,eth1,eth2,eth3", "ok", "eth0 (10.0.0.5)"),
        ("NCCL_SOCKET_IFNAME", "eth2", "fail", "eth2 is down"),
        ("GLOO_SOCKET_IFNAME", "eth3", "fail", "eth3 has no address"),
        ("NCCL_SOCKET_IFNAME", "lo", "fail", "leads back to this machine"),
    ],
)
def test_interfaces_are_chosen_as_nccl_and_gloo_choose_them(variable, value, status, words):
    (finding,) = check_interfaces(TWO_NODES, {variable: value}, ALL)
    assert (finding.status, words in finding.found) == (status, True), finding


def test_several_interfaces_and_none_is_chosen(tmp_path):
    routes = tmp_path / "route"
    routes.write_text("Iface\tDestination\tGateway\neth0\t0000000A\t0\neth1\t00000000\t0100A8C0\n")
    (finding,) = check_interfaces(TWO_NODES, {}, ALL, routes)
    assert finding.status == "warn"
    assert "eth0 (10.0.0.5), eth1 (192.168.0.5): several" in finding.found
    assert "NCCL_SOCKET_IFNAME=eth1 GLOO_SOCKET_IFNAME=eth1" in finding.remedy  # the way to everywhere
    (finding,) = check_interfaces(LaunchPlan(), {}, ALL, routes)
    assert finding.status == "ok"
    (finding,) = check_interfaces(TWO_NODES, {}, [LO, BRIDGE, DOWN, BARE], routes)
    assert finding.status == "fail"
    assert "none that leads to other machines" in finding.found


def test_nccl_and_gloo_on_different_networks_are_reported():
    *_, finding = check_interfaces(TWO_NODES, {"NCCL_SOCKET_IFNAME": "eth0", "GLOO_SOCKET_IFNAME": "eth1"}, ALL)
    assert finding.status == "warn"
    assert "different interfaces" in finding.found

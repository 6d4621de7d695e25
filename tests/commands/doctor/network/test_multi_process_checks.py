"""Tests the checks between ranks; tests/distributed/launch/test_doctor.py uses real processes."""

import shutil
import subprocess
import sys
import time

import pytest
from torch import distributed as dist
from torch.distributed import HashStore, TCPStore

from commands.doctor.check import Finding
from commands.doctor.network import rendezvous
from commands.doctor.network.collective_bench import round_robin_pairs
from commands.doctor.network.collective_checks import CollectiveChecks
from commands.doctor.network.merge_findings import merge_findings
from commands.doctor.network.multi_process_checks import MultiProcessDoctor
from commands.doctor.network.reachability import Listener, gloo_address, reach_findings, unreachable
from commands.doctor.network.rendezvous import HeartbeatStore, HeartbeatStoreError
from commands.doctor.network.version_consistency import code_finding, combined_hash, package_finding, source_files
from commands.launch.launched_processes import Rendezvous
from engine.system.installation import PROJECT
from tests.conftest import REPOSITORY
from tests.support.waiting import wait_until

NAMES = {0: "rank 0 on a", 1: "rank 1 on a", 2: "rank 2 on b", 3: "rank 3 on b"}
HOSTS = {0: "a", 1: "a", 2: "b", 3: "b"}


def test_equal_findings_are_merged_and_others_name_their_rank():
    well = Finding("memory", "ok", "10 GiB")
    everywhere = Finding("variables", "warn", "NCCL_MIN_NRINGS is set", "old", "unset it")
    found = {rank: [well._replace(found=f"{rank} GiB"), everywhere] for rank in NAMES}
    found[2].append(Finding("micro batch", "fail", "no memory", "why", "fix"))
    found[3].append(Finding("micro batch", "fail", "no memory at all", "why", "fix"))
    assert merge_findings(found, NAMES, HOSTS) == [
        well._replace(found="0 GiB"),
        everywhere,
        Finding("micro batch", "fail", "rank 2 on b (and 1 more on this host): no memory", "why", "fix"),
    ]


def test_nothing_is_lost_of_processes_that_have_come_in_any_order():
    class Gathered:
        """Return the findings of four processes on two nodes, of which the third came before the second."""

        present = [0, 1, 2, 3]

        def gather(self, topic, word):
            return {rank: [list(finding) for finding in found[rank]] for rank in (0, 2, 1, 3)}

    scarce, full = Finding("memory", "warn", "1 GiB", "why", "fix"), Finding("shared memory", "fail", "full", "", "fix")
    found = {0: [], 1: [scarce], 2: [scarce._replace(found="2 GiB")], 3: [full]}
    order = (0, 2, 1, 3)
    names, hosts = {rank: NAMES[rank] for rank in order}, {rank: HOSTS[rank] for rank in order}
    ranks = MultiProcessDoctor({}, store=Gathered(), names=names, hosts=hosts)
    assert [(finding.check, finding.status, finding.found) for finding in ranks.merge([])] == [
        ("memory", "warn", "rank 1 on a: 1 GiB"),
        ("memory", "warn", "rank 2 on b: 2 GiB"),
        ("shared memory", "fail", "rank 3 on b: full"),
    ]


def test_no_process_group_is_left_where_computing_together_fails():
    class Lost:
        """A rendezvous of one process, whose store is lost when ranks report whether their sums are right."""

        rank, world_size, present = 0, 1, [0]

        def store_for(self, purpose):
            return HashStore()

        def gather(self, topic, word):
            if topic == "gpus":
                return {0: word}
            assert dist.is_initialized()
            raise RuntimeError("connection reset by peer")

    (finding,) = CollectiveChecks(Lost(), {0: NAMES[0]}, 1).findings()
    assert finding.status == "fail"
    assert finding.found.endswith(": connection reset by peer")
    assert not dist.is_initialized()


def test_one_changed_file_of_a_copy_is_named(tmp_path):
    for part in ("engine", "train.py", "configs"):
        copy = shutil.copytree if (PROJECT / part).is_dir() else shutil.copy
        copy(PROJECT / part, tmp_path / part)
    copied = ("engine", "train.py", "configs")
    here = {name: digest for name, digest in source_files().items() if name.startswith(copied)}
    there = source_files(tmp_path)
    assert there == here
    assert combined_hash(there) == combined_hash(here)
    (tmp_path / "engine/distributed/step_counters.py").write_text("# changed\n")
    there = source_files(tmp_path)
    hashes = {"rank 0 on a": combined_hash(here), "rank 1 on b": combined_hash(there)}
    commits = {"rank 0 on a": "0123456789ab", "rank 1 on b": ""}
    finding = code_finding(hashes, commits, {"rank 0 on a": here, "rank 1 on b": there})
    assert finding.status == "fail"
    assert finding.found == (
        "these files are not those of rank 0 on a (commit 0123456789ab): "
        "rank 1 on b (no git checkout): engine/distributed/step_counters.py"
    )


def test_package_versions_that_differ_are_named_with_their_nodes():
    same = {"python": "3.11", "torch": "2.13", "lightning": "2.6", "numpy": "2.4"}
    assert package_finding({"a": same, "b": same}).status == "ok"
    finding = package_finding({"a": same, "b": {**same, "numpy": "2.3"}, "c": {**same, "peft": "0.1"}})
    assert finding.found == "numpy: 2.4 on a, 2.3 on b; peft: not installed on a, 0.1 on c"


@pytest.mark.parametrize("players", [2, 3, 4, 7])
def test_every_pair_occurs_once_and_no_rank_twice_in_a_round(players):
    rounds = round_robin_pairs(range(players))
    pairs = [pair for pairs_of_round in rounds for pair in pairs_of_round]
    assert sorted(pairs) == [(a, b) for a in range(players) for b in range(a + 1, players)]
    for pairs_of_round in rounds:
        assert len({player for pair in pairs_of_round for player in pair}) == 2 * len(pairs_of_round)


def test_the_address_that_gloo_would_take():
    assert gloo_address({"GLOO_SOCKET_IFNAME": "lo"}) == "127.0.0.1"
    with pytest.raises(ValueError, match="GLOO_SOCKET_IFNAME is nosuch9, which has no address here; there are "):
        gloo_address({"GLOO_SOCKET_IFNAME": "nosuch9"})


def test_unreachable_ranks_and_wrong_answers_are_reported():
    here, other, gone = (Listener({"GLOO_SOCKET_IFNAME": "lo"}) for _ in range(3))
    gone.close()
    failed = unreachable({0: here.address, 1: gone.address, 2: here.address._replace(token=other.address.token)})
    assert failed == {1: "[Errno 111] Connection refused", 2: "another program answers there"}
    findings = list(reach_findings({1: gone.address, 2: other.address}, {0: failed}, NAMES))
    assert [finding.status for finding in findings] == ["fail", "fail"]
    assert findings[0].found.startswith("rank 0 on a cannot reach rank 1 on a at 127.0.0.1, a port of its own: ")
    assert "GLOO_SOCKET_IFNAME=NAME" in findings[0].remedy
    here.close()
    other.close()


PEER = """
import sys, os, signal
from commands.doctor.network.rendezvous import HeartbeatStore
from commands.launch.launched_processes import Rendezvous
store = HeartbeatStore(Rendezvous(1, 3, "127.0.0.1", int(sys.argv[1]), True), "a", 120)
assert store.gather("arrival", "here") == {0: "first", 1: "here"}
assert store.gather("second", 1) == {0: 0, 1: 1}
os.kill(os.getpid(), signal.SIGSTOP)
"""


@pytest.mark.slow
def test_absent_and_stopped_ranks_are_missing_and_no_rank_waits_for_ever(monkeypatch):
    monkeypatch.setattr(rendezvous, "_SILENCE", 2.0)
    server = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    peer = subprocess.Popen([sys.executable, "-c", PEER, str(server.port)], cwd=REPOSITORY)
    try:
        wait_until(lambda: server.check(["doctor/a/arrival/1"]) or peer.poll() is not None)
        assert peer.poll() is None
        store = HeartbeatStore(Rendezvous(0, 3, "127.0.0.1", server.port, True), "a", 3)
        began = time.monotonic()
        assert store.gather("arrival", "first") == {0: "first", 1: "here"}
        assert 2.5 < time.monotonic() - began < 20  # rank 2 may still be on its way
        assert store.gather("second", 0) == {0: 0, 1: 1}  # it is not waited for again
        began = time.monotonic()
        assert store.gather("third", 0) == {0: 0}
        assert store.present == [0]
        assert time.monotonic() - began < 20
        store.leave()
    finally:
        peer.kill()
        peer.wait(30)


def test_an_absent_rank_0_and_incomplete_launcher_variables_are_named():
    with pytest.raises(
        HeartbeatStoreError, match="rank 1 of 2 on .* has tried for 1 s to reach rank 0 at 127.0.0.1:9: "
    ):
        HeartbeatStore(Rendezvous(1, 2, "127.0.0.1", 9, False), "a", 1)
    ranks = MultiProcessDoctor({"RANK": "0", "WORLD_SIZE": "2"})
    assert ranks.is_launched
    assert ranks.reports  # so that its first check reports what is missing
    with pytest.raises(ValueError, match="MASTER_ADDR and MASTER_PORT are not set"):
        list(ranks.checks()[0].examine())
    assert not MultiProcessDoctor({}).is_launched

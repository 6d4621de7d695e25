"""What the processes of a team say together; with real processes: tests/distributed/test_doctor.py."""

import shutil
import subprocess
import sys
import time

import pytest
from torch import distributed as dist
from torch.distributed import HashStore, TCPStore

from commands.doctor import meeting as meeting_module
from commands.doctor.computing import Computing
from commands.doctor.finding import Finding
from commands.doctor.group import tournament
from commands.doctor.meeting import Meeting, NoMeeting
from commands.doctor.merging import merged
from commands.doctor.reach import Listener, failures, gloo_address, reach_findings
from commands.doctor.same_everywhere import PROJECT, code_finding, package_finding, source_files, whole_hash
from commands.doctor.team import Team
from commands.processes import Place
from tests.conftest import REPOSITORY

NAMES = {0: "process 0 on a", 1: "process 1 on a", 2: "process 2 on b", 3: "process 3 on b"}
HOSTS = {0: "a", 1: "a", 2: "b", 3: "b"}


def test_what_all_say_is_said_once_and_what_differs_says_who():
    well = Finding("memory", "ok", "10 GiB")
    everywhere = Finding("variables", "warn", "NCCL_MIN_NRINGS is set", "old", "unset it")
    found = {rank: [well._replace(found=f"{rank} GiB"), everywhere] for rank in NAMES}
    found[2].append(Finding("micro batch", "fail", "no memory", "why", "fix"))
    found[3].append(Finding("micro batch", "fail", "no memory at all", "why", "fix"))
    assert merged(found, NAMES, HOSTS) == [
        well._replace(found="0 GiB"),
        everywhere,
        Finding("micro batch", "fail", "process 2 on b (and 1 beside it): no memory", "why", "fix"),
    ]


def test_nothing_is_lost_of_processes_that_have_come_in_any_order():
    class Gathered:
        """What four processes on two nodes say, of which the third came before the second."""

        present = [0, 1, 2, 3]

        def gather(self, topic, word):
            return {rank: [list(finding) for finding in found[rank]] for rank in (0, 2, 1, 3)}

    scarce, full = Finding("memory", "warn", "1 GiB", "why", "fix"), Finding("shared memory", "fail", "full", "", "fix")
    found = {0: [], 1: [scarce], 2: [scarce._replace(found="2 GiB")], 3: [full]}
    order = (0, 2, 1, 3)
    names, hosts = {rank: NAMES[rank] for rank in order}, {rank: HOSTS[rank] for rank in order}
    team = Team({}, meeting=Gathered(), names=names, hosts=hosts)
    assert [(finding.check, finding.status, finding.found) for finding in team.agreed([])] == [
        ("memory", "warn", "process 1 on a: 1 GiB"),
        ("memory", "warn", "process 2 on b: 2 GiB"),
        ("shared memory", "fail", "process 3 on b: full"),
    ]


def test_no_process_group_is_left_where_computing_together_fails():
    class Lost:
        """A meeting of one process, whose store is lost when all say whether their sums are right."""

        rank, processes, present = 0, 1, [0]

        def store_for(self, purpose):
            return HashStore()

        def gather(self, topic, word):
            if topic == "gpus":
                return {0: word}
            assert dist.is_initialized()
            raise RuntimeError("connection reset by peer")

    (finding,) = Computing(Lost(), {0: NAMES[0]}, 1).findings()
    assert finding.status == "fail" and finding.found.endswith(": connection reset by peer")
    assert not dist.is_initialized()


def test_one_changed_file_of_a_copy_is_named(tmp_path):
    for part in ("engine", "train.py", "configs"):
        copy = shutil.copytree if (PROJECT / part).is_dir() else shutil.copy
        copy(PROJECT / part, tmp_path / part)
    copied = ("engine", "train.py", "configs")
    here = {name: digest for name, digest in source_files().items() if name.startswith(copied)}
    there = source_files(tmp_path)
    assert there == here and whole_hash(there) == whole_hash(here)
    (tmp_path / "engine/votes.py").write_text("# changed\n")
    there = source_files(tmp_path)
    hashes = {"process 0 on a": whole_hash(here), "process 1 on b": whole_hash(there)}
    commits = {"process 0 on a": "0123456789ab", "process 1 on b": ""}
    finding = code_finding(hashes, commits, {"process 0 on a": here, "process 1 on b": there})
    assert finding.status == "fail"
    assert finding.found == (
        "these files are not those of process 0 on a (commit 0123456789ab): "
        "process 1 on b (no git checkout): engine/votes.py"
    )


def test_packages():
    same = {"python": "3.11", "torch": "2.13", "lightning": "2.6", "numpy": "2.4"}
    assert package_finding({"a": same, "b": same}).status == "ok"
    finding = package_finding({"a": same, "b": {**same, "numpy": "2.3"}, "c": {**same, "peft": "0.1"}})
    assert finding.found == "numpy: 2.4 on a, 2.3 on b; peft: not installed on a, 0.1 on c"


@pytest.mark.parametrize("players", [2, 3, 4, 7])
def test_everybody_meets_everybody_once_and_nobody_twice_in_a_round(players):
    rounds = tournament(range(players))
    pairs = [pair for one in rounds for pair in one]
    assert sorted(pairs) == [(a, b) for a in range(players) for b in range(a + 1, players)]
    for one in rounds:
        assert len({player for pair in one for player in pair}) == 2 * len(one)


def test_the_address_that_gloo_would_take():
    assert gloo_address({"GLOO_SOCKET_IFNAME": "lo"}) == "127.0.0.1"
    with pytest.raises(ValueError, match="GLOO_SOCKET_IFNAME is nosuch9, which has no address here; there are "):
        gloo_address({"GLOO_SOCKET_IFNAME": "nosuch9"})


def test_who_cannot_be_reached_and_who_is_not_who_he_should_be():
    here, other, gone = (Listener({"GLOO_SOCKET_IFNAME": "lo"}) for _ in range(3))
    gone.close()
    failed = failures({0: here.offer, 1: gone.offer, 2: here.offer._replace(token=other.offer.token)})
    assert failed == {1: "[Errno 111] Connection refused", 2: "another program answers there"}
    found = list(reach_findings({1: gone.offer, 2: other.offer}, {0: failed}, NAMES))
    assert [finding.status for finding in found] == ["fail", "fail"]
    assert found[0].found.startswith("process 0 on a cannot reach process 1 on a at 127.0.0.1, a port of its own: ")
    assert "GLOO_SOCKET_IFNAME=NAME" in found[0].remedy
    here.close()
    other.close()


PEER = """
import sys, os, signal
from commands.doctor.meeting import Meeting
from commands.processes import Place
meeting = Meeting(Place(1, 3, "127.0.0.1", int(sys.argv[1]), True), "a", 120)
assert meeting.gather("arrival", "here") == {0: "first", 1: "here"}
assert meeting.gather("second", 1) == {0: 0, 1: 1}
os.kill(os.getpid(), signal.SIGSTOP)
"""


def test_who_does_not_come_and_who_stops_is_missing_and_nobody_waits_for_ever(monkeypatch):
    monkeypatch.setattr(meeting_module, "_SILENCE", 2.0)
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    peer = subprocess.Popen([sys.executable, "-c", PEER, str(store.port)], cwd=REPOSITORY)
    try:
        while not store.check(["doctor/a/arrival/1"]):
            assert peer.poll() is None
            time.sleep(0.02)
        meeting = Meeting(Place(0, 3, "127.0.0.1", store.port, True), "a", 3)
        began = time.monotonic()
        assert meeting.gather("arrival", "first") == {0: "first", 1: "here"}
        assert 2.5 < time.monotonic() - began < 20  # process 2 may still be on its way
        assert meeting.gather("second", 0) == {0: 0, 1: 1}  # it is not waited for again
        began = time.monotonic()
        assert meeting.gather("third", 0) == {0: 0}
        assert meeting.present == [0] and time.monotonic() - began < 20
        meeting.leave()
    finally:
        peer.kill()
        peer.wait(30)


def test_nobody_listens_and_the_launcher_has_not_said_all():
    with pytest.raises(NoMeeting, match="process 1 of 2 on .* has tried for 1 s to reach process 0 at 127.0.0.1:9: "):
        Meeting(Place(1, 2, "127.0.0.1", 9, False), "a", 1)
    team = Team({"RANK": "0", "WORLD_SIZE": "2"})
    assert team.is_one and team.speaks  # so that its first check says what is missing
    with pytest.raises(ValueError, match="MASTER_ADDR and MASTER_PORT are not set"):
        list(team.checks()[0].examine())
    assert not Team({}).is_one

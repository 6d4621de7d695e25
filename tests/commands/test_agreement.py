"""All processes of a run act on one answer."""

import socket
import threading
from datetime import timedelta

import pytest
import torch
from torch.distributed import TCPStore

from commands import agreement
from commands.agreement import agreed, begun_before, part_from_earlier_lives
from commands.processes import meeting_place


def never():
    raise AssertionError("asked, although the first process decides")


def side_by_side(*calls):
    """What every call returned or raised, each in a thread of its own."""
    results = [None] * len(calls)

    def run(number):
        try:
            results[number] = calls[number]()
        except Exception as error:
            results[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return results


@pytest.fixture
def store():
    return TCPStore("127.0.0.1", 0, is_master=True, timeout=timedelta(seconds=20), wait_for_workers=False)


@pytest.fixture
def torchrun(store):
    """The environment of a worker of torchrun by its rank."""

    def environ(rank, processes=2):
        return {
            "TORCHELASTIC_RUN_ID": "x", "TORCHELASTIC_USE_AGENT_STORE": "True", "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(store.port), "RANK": str(rank), "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(processes), "LOCAL_WORLD_SIZE": str(processes),
        }  # fmt: skip

    return environ


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def by_hand(rank, port, processes=2):
    return {"RANK": str(rank), "WORLD_SIZE": str(processes), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}


def test_the_processes_that_a_run_starts_take_its_answer():
    environ: dict[str, str] = {}
    assert agreed("run_name", lambda: "mine", environ) == "mine"
    assert agreed("run_name", never, {**environ, "LOCAL_RANK": "1", "WORLD_SIZE": "2"}) == "mine"
    assert agreed("run_name", lambda: "next", environ) == "next", "the next run of the same process decides anew"


def test_processes_of_torchrun(torchrun):
    answers = side_by_side(
        lambda: agreed("run_name", lambda: "first", torchrun(0, 3)),
        lambda: agreed("run_name", never, torchrun(1, 3)),
        lambda: agreed("run_name", never, torchrun(2, 3)),
    )
    assert answers == ["first"] * 3
    again = side_by_side(
        lambda: agreed("run_name", never, torchrun(0)), lambda: agreed("run_name", never, torchrun(1))
    )
    assert again == ["first"] * 2, "the name is kept over a restart of the processes"


def test_an_answer_of_dead_processes_is_none(torchrun, store):
    """A restarted process must not act on what the agent's store has kept from the last life of the team."""
    for answer in ("", "after-step-20.ckpt", "after-step-40.ckpt"):
        late = threading.Event()

        def first(answer=answer, late=late):
            late.wait(10)
            return agreed("checkpoint", lambda: answer, torchrun(0))

        def second(late=late):
            threading.Timer(0.2, late.set).start()  # it asks before the first process has come
            return agreed("checkpoint", never, torchrun(1))

        assert side_by_side(first, second) == [answer, answer]
        store.set("lockstep/checkpoint/asks/1", "of one that died before it had the answer")


def test_what_the_first_process_fails_with_ends_all(torchrun):
    def fails():
        raise FileNotFoundError("no such checkpoint")

    ours, theirs = side_by_side(
        lambda: agreed("checkpoint", fails, torchrun(0)), lambda: agreed("checkpoint", never, torchrun(1))
    )
    assert isinstance(ours, FileNotFoundError)
    assert isinstance(theirs, ValueError) and "process 0 ended: no such checkpoint" in str(theirs)


def test_processes_started_by_hand_or_by_kubernetes():
    """Plain Lightning trains a PyTorchJob's pods each for itself: it detects no environment without LOCAL_RANK."""
    port = free_port()
    answers = side_by_side(
        lambda: agreed("run_name", lambda: "first", by_hand(0, port)),
        lambda: agreed("run_name", never, by_hand(1, port)),
    )
    assert answers == ["first", "first"]


def test_whether_the_launcher_starts_a_run_again(torchrun):
    assert [begun_before(torchrun(0)) for _ in range(3)] == [False, True, True]
    assert begun_before({**torchrun(0), "TORCHELASTIC_RESTART_COUNT": "1"})
    assert begun_before({"SLURM_RESTART_COUNT": "2"}) and not begun_before({"SLURM_RESTART_COUNT": "0"})
    assert not begun_before({})


def test_a_life_has_keys_of_its_own(torchrun, store, monkeypatch):
    rendezvous = agreement.import_module("torch.distributed.rendezvous")
    monkeypatch.setitem(rendezvous._rendezvous_handlers, "env", rendezvous._env_rendezvous_handler)
    for key, value in torchrun(0).items():
        monkeypatch.setenv(key, value)
    for value in ("the first", "the second"):
        side_by_side(lambda: part_from_earlier_lives(torchrun(0)), lambda: part_from_earlier_lives(torchrun(1)))
        ours, rank, processes = next(torch.distributed.rendezvous("env://"))
        assert (rank, processes) == (0, 2)
        assert not ours.check(["address"]), "left by a process that is dead"
        ours.set("address", value)
        assert ours.get("address").decode() == value


def test_a_busy_port(monkeypatch):
    monkeypatch.setattr(agreement, "_PORT_PATIENCE", 0.1)
    with socket.socket() as other:
        other.bind(("0.0.0.0", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(ValueError, match=f"MASTER_PORT {port} of process 0 of 2 is in use by another program"):
            agreed("run_name", never, by_hand(0, port))


def test_a_port_that_becomes_free():
    other = socket.socket()
    other.bind(("0.0.0.0", 0))
    other.listen()
    port = other.getsockname()[1]
    threading.Timer(1.0, other.close).start()
    assert agreement._Meeting(meeting_place(by_hand(0, port))).store.port == port


def test_a_wrong_host(monkeypatch):
    monkeypatch.setattr(agreement, "_NAME_PATIENCE", 0.1)
    with pytest.raises(ValueError, match="MASTER_ADDR nowhere.invalid is no host that this machine knows"):
        agreed("run_name", never, {**by_hand(0, 29511), "MASTER_ADDR": "nowhere.invalid"})


def test_a_process_that_does_not_come(monkeypatch):
    monkeypatch.setattr(agreement, "_PATIENCE", 0.5)
    port = free_port()
    with pytest.raises(ValueError, match="process 0 of 2 has waited 0 s for some of the 2 processes at MASTER_ADDR"):
        agreed("run_name", lambda: "first", by_hand(0, port))
    with pytest.raises(ValueError, match="process 1 of 2 cannot be reached"):
        agreed("run_name", never, by_hand(1, free_port()))


def test_incomplete_variables():
    with pytest.raises(ValueError, match="RANK is 0, but MASTER_ADDR and MASTER_PORT are not set"):
        agreed("run_name", never, {"RANK": "0", "WORLD_SIZE": "2"})
    with pytest.raises(ValueError, match="WORLD_SIZE is 2, but RANK is not set"):
        agreed("run_name", never, {"LOCAL_RANK": "0", "WORLD_SIZE": "2"})
    with pytest.raises(ValueError, match="RANK 2, WORLD_SIZE 2 and LOCAL_WORLD_SIZE 1 do not fit together"):
        agreed("run_name", never, by_hand(2, 29500))


def test_a_first_process_at_work_is_waited_for(torchrun, monkeypatch):
    """It may read through checkpoints of many GB; only a silent one is given up."""
    monkeypatch.setattr(agreement, "_PATIENCE", 0.4)
    slow = threading.Event()
    threading.Timer(1.2, slow.set).start()
    answers = side_by_side(
        lambda: agreed("checkpoint", lambda: str(slow.wait(10)), torchrun(0)),
        lambda: agreed("checkpoint", never, torchrun(1)),
    )
    assert answers == ["True", "True"]

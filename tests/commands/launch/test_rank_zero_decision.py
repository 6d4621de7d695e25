"""Checks that all ranks of a run receive the decision of rank 0."""

import socket
import threading
from datetime import timedelta

import pytest
import torch
from lightning.fabric.plugins.environments import LightningEnvironment
from lightning.pytorch.accelerators import CPUAccelerator
from lightning.pytorch.strategies import DDPStrategy
from torch.distributed import TCPStore

from commands.launch import rendezvous_store
from commands.launch.launched_processes import rendezvous_from_env
from commands.launch.rank_zero_decision import decide_on_rank_zero
from commands.launch.restart_detection import connect_with_prefix, is_restart, restart_prefix
from engine.lightning_internals.processes import strategy_timeout


def never():
    raise AssertionError("asked, although the first process decides")


def side_by_side(*calls):
    """Return what every call returned or raised, each in a thread of its own."""
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
            "TORCHELASTIC_RUN_ID": "x",
            "TORCHELASTIC_USE_AGENT_STORE": "True",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(store.port),
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(processes),
            "LOCAL_WORLD_SIZE": str(processes),
        }

    return environ


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def by_hand(rank, port, processes=2):
    return {"RANK": str(rank), "WORLD_SIZE": str(processes), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}


def test_the_processes_that_a_run_starts_take_its_answer():
    environ: dict[str, str] = {}
    assert decide_on_rank_zero("run_name", lambda: "mine", environ) == "mine"
    assert decide_on_rank_zero("run_name", never, {**environ, "LOCAL_RANK": "1", "WORLD_SIZE": "2"}) == "mine"
    assert decide_on_rank_zero("run_name", lambda: "next", environ) == "next", (
        "the next run of the process decides again"
    )


def test_processes_of_torchrun_keep_the_first_decision(torchrun):
    answers = side_by_side(
        lambda: decide_on_rank_zero("run_name", lambda: "first", torchrun(0, 3), keep=True),
        lambda: decide_on_rank_zero("run_name", never, torchrun(1, 3)),
        lambda: decide_on_rank_zero("run_name", never, torchrun(2, 3)),
    )
    assert answers == ["first"] * 3
    again = side_by_side(
        lambda: decide_on_rank_zero("run_name", never, torchrun(0), keep=True),
        lambda: decide_on_rank_zero("run_name", never, torchrun(1)),
    )
    assert again == ["first"] * 2, "the name is kept over a restart of the processes"


def test_an_answer_of_dead_processes_is_none(torchrun, store):
    """A restarted process must not act on what the agent's store has kept from the last life of the team."""
    for answer in ("", "after-step-20.ckpt", "after-step-40.ckpt"):
        late = threading.Event()

        def first(answer=answer, late=late):
            late.wait(10)
            return decide_on_rank_zero("checkpoint", lambda: answer, torchrun(0))

        def second(late=late):
            threading.Timer(0.2, late.set).start()  # it asks before the first process has come
            return decide_on_rank_zero("checkpoint", never, torchrun(1))

        assert side_by_side(first, second) == [answer, answer]
        store.set("lockstep/checkpoint/requests/1", "of one that died before it had the answer")


def test_an_error_of_process_0_ends_all(torchrun):
    def fails():
        raise FileNotFoundError("no such checkpoint")

    ours, theirs = side_by_side(
        lambda: decide_on_rank_zero("checkpoint", fails, torchrun(0)),
        lambda: decide_on_rank_zero("checkpoint", never, torchrun(1)),
    )
    assert isinstance(ours, FileNotFoundError)
    assert isinstance(theirs, ValueError)
    assert "rank 0 ended: no such checkpoint" in str(theirs)


def test_processes_started_by_hand_or_by_kubernetes_share_the_decision_of_rank_0():
    """Plain Lightning trains a PyTorchJob's pods each for itself: it detects no environment without LOCAL_RANK."""
    port = free_port()
    answers = side_by_side(
        lambda: decide_on_rank_zero("run_name", lambda: "first", by_hand(0, port)),
        lambda: decide_on_rank_zero("run_name", never, by_hand(1, port)),
    )
    assert answers == ["first", "first"]


def test_a_restart_by_the_launcher_is_recognized(torchrun):
    assert [is_restart(torchrun(0)) for _ in range(3)] == [False, True, True]
    assert is_restart({**torchrun(0), "TORCHELASTIC_RESTART_COUNT": "1"})
    assert is_restart({"SLURM_RESTART_COUNT": "2"})
    assert not is_restart({"SLURM_RESTART_COUNT": "0"})
    assert not is_restart({})


def test_each_start_has_keys_of_its_own(torchrun, store, monkeypatch):
    """A restarted rank must not find the address that a dead one has left in the agent's store."""
    connected = []
    monkeypatch.setattr(torch.distributed, "init_process_group", lambda backend, **settings: connected.append(settings))
    strategy = DDPStrategy(parallel_devices=[torch.device("cpu")], accelerator=CPUAccelerator())
    strategy.cluster_environment = LightningEnvironment()
    for value in ("the first", "the second"):
        ours, theirs = side_by_side(lambda: restart_prefix(torchrun(0)), lambda: restart_prefix(torchrun(1)))
        assert ours == theirs
        connect_with_prefix(strategy, ours, torchrun(0))
        settings = connected[-1]
        assert (settings["rank"], settings["world_size"], settings["device_id"]) == (0, 2, None)
        assert settings["timeout"] == settings["store"].timeout == strategy_timeout(strategy)
        assert not settings["store"].check(["address"]), "left by a rank that is dead"
        settings["store"].set("address", value)
        assert settings["store"].get("address").decode() == value


def test_a_store_that_ends_with_the_ranks_needs_no_prefix(torchrun):
    assert restart_prefix(by_hand(0, free_port())) is None
    assert restart_prefix(torchrun(0, processes=1)) is None
    assert restart_prefix({}) is None


def test_a_busy_port_is_named(monkeypatch):
    monkeypatch.setattr(rendezvous_store, "PORT_TIMEOUT", 0.1)
    with socket.socket() as other:
        other.bind(("0.0.0.0", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(ValueError, match=f"MASTER_PORT {port} of rank 0 of 2 is in use by another program"):
            decide_on_rank_zero("run_name", never, by_hand(0, port))


def test_the_store_waits_for_a_port_that_becomes_free():
    other = socket.socket()
    other.bind(("0.0.0.0", 0))
    other.listen()
    port = other.getsockname()[1]
    threading.Timer(1.0, other.close).start()
    assert rendezvous_store.RendezvousStore(rendezvous_from_env(by_hand(0, port))).store.port == port


def test_an_unknown_host_is_named(monkeypatch):
    monkeypatch.setattr(rendezvous_store, "HOST_TIMEOUT", 0.1)
    with pytest.raises(ValueError, match="MASTER_ADDR nowhere.invalid: this machine knows no such host"):
        decide_on_rank_zero("run_name", never, {**by_hand(0, 29511), "MASTER_ADDR": "nowhere.invalid"})


def test_a_process_that_does_not_come(monkeypatch):
    monkeypatch.setattr(rendezvous_store, "TIMEOUT", 0.5)
    port = free_port()
    with pytest.raises(ValueError, match="rank 0 of 2 has waited 0 s for some of the 2 ranks at MASTER_ADDR"):
        decide_on_rank_zero("run_name", lambda: "first", by_hand(0, port))
    with pytest.raises(ValueError, match="rank 1 of 2 cannot be reached"):
        decide_on_rank_zero("run_name", never, by_hand(1, free_port()))


def test_incomplete_variables_of_a_launcher_are_named():
    with pytest.raises(ValueError, match="RANK is 0, but MASTER_ADDR and MASTER_PORT are not set"):
        decide_on_rank_zero("run_name", never, {"RANK": "0", "WORLD_SIZE": "2"})
    with pytest.raises(ValueError, match="WORLD_SIZE is 2, but RANK is not set"):
        decide_on_rank_zero("run_name", never, {"LOCAL_RANK": "0", "WORLD_SIZE": "2"})
    with pytest.raises(ValueError, match="RANK 2, WORLD_SIZE 2 and LOCAL_WORLD_SIZE 1 do not fit together"):
        decide_on_rank_zero("run_name", never, by_hand(2, 29500))


def test_a_first_process_at_work_is_waited_for(torchrun, monkeypatch):
    """Rank 0 may read checkpoints of many GB; only a silent rank 0 times out."""
    monkeypatch.setattr(rendezvous_store, "TIMEOUT", 0.4)
    slow = threading.Event()
    threading.Timer(1.2, slow.set).start()
    answers = side_by_side(
        lambda: decide_on_rank_zero("checkpoint", lambda: str(slow.wait(10)), torchrun(0)),
        lambda: decide_on_rank_zero("checkpoint", never, torchrun(1)),
    )
    assert answers == ["True", "True"]

"""Tests the number of CPU threads: it is timed, recorded, and used again by a resumed run."""

import json
import logging
import math
from types import SimpleNamespace

import pytest
import torch
from lightning.pytorch.plugins.precision import Precision
from lightning.pytorch.strategies import DDPStrategy, FSDPStrategy, SingleDeviceStrategy

from callbacks.performance import cpu_threads, thread_timing
from callbacks.performance.cpu_threads import CpuThreads, KnownThreads
from callbacks.performance.thread_timing import Rates, reason_not_timed, time_threads
from engine.optim.global_loss_mean import LossSum
from tests.conftest import TINY
from tests.support.fake_trainer import fake_trainer
from tests.support.families.tiny_linear import FEATURES, TinyData


@pytest.fixture(autouse=True)
def same_threads_afterwards():
    logger = logging.getLogger("lockstep")
    before, level = torch.get_num_threads(), logger.level
    logger.setLevel(logging.DEBUG)
    yield
    torch.set_num_threads(before)
    logger.setLevel(level)


@pytest.fixture
def cores(monkeypatch):
    """Set the number of cores of the machine: ``cores(4)``."""
    return lambda number: monkeypatch.setattr(cpu_threads, "available_cpus", lambda: float(number))


@pytest.fixture
def measured(monkeypatch):
    """Set the result of the timing; return the list of timed numbers of threads."""
    timed = []

    def returns(rates):
        def time_threads(trainer, pl_module, number):
            timed.append(number)
            return rates

        monkeypatch.setattr(cpu_threads, "time_threads", time_threads)
        return timed

    return returns


class DDPOnCPU(DDPStrategy):
    root_device = torch.device("cpu")

    def __init__(self):
        pass


def a_trainer(processes=1, strategy=None):
    strategy = strategy or SingleDeviceStrategy("cpu")
    return fake_trainer(ranks=processes, strategy=strategy, precision_plugin=Precision())


def number_for(known, stage="fit", **trainer):
    CpuThreads(known).setup(a_trainer(**trainer), SimpleNamespace(supports_grad_accumulation=True), stage)
    return torch.get_num_threads()


@pytest.mark.parametrize(
    ("rates", "number", "line"),
    [
        (Rates(780.4, 26.1), 1, "threads: 1 of 4 (780 samples/s against 26)"),
        (Rates(900, 1000), 1, "threads: 1 of 4 (900 samples/s against 1,000)"),  # the speed-up is below the minimum
        (Rates(900, 2700), 4, "threads: 4 of 4 (2,700 samples/s against 900)"),
        (
            None,
            4,
            "threads: 4, the share of the cores of a rank (not timed: a pass fails or takes too long); "
            "if other programs use the cores, --threads 1 is faster",
        ),
    ],
)
def test_the_faster_number_is_chosen(cores, measured, monkeypatch, messages, rates, number, line):
    monkeypatch.setattr(cpu_threads, "configure_model", lambda trainer: None)
    cores(4)
    timed = measured(rates)
    assert number_for(KnownThreads()) == number
    assert timed == [4]
    assert messages == [line]


def test_with_one_core_nothing_is_timed(cores, measured, messages):
    cores(1.5)
    timed = measured(None)
    assert number_for(KnownThreads()) == 1
    assert timed == []
    assert messages == ["threads: 1, the share of the cores of a rank"]


@pytest.mark.parametrize("stage", ["fit", "validate", "test", "predict"])
def test_a_number_set_by_the_user_is_kept(cores, measured, monkeypatch, messages, stage):
    monkeypatch.setattr(torch, "set_num_threads", lambda number: pytest.fail("the number was changed"))
    cores(4)
    timed = measured(Rates(1, 10))
    number_for(KnownThreads("OMP_NUM_THREADS", 1, 8), stage)
    assert timed == []
    assert messages == [f"threads: {torch.get_num_threads()}, set by OMP_NUM_THREADS"]


def test_a_number_that_differs_from_the_recorded_one_is_reported(messages):
    torch.set_num_threads(1)
    number_for(KnownThreads("--threads", 2, 1))
    assert messages[-1] == (
        "threads: 1, set by --threads; the run began with 2, so it resumes within rounding, not bit for bit"
    )
    for quiet in (KnownThreads("--threads", 1, 1), KnownThreads("--threads", 2, 2), KnownThreads("--threads")):
        number_for(quiet)
    assert len(messages) == 5


def test_a_resumed_run_uses_its_recorded_number_also_on_fewer_cores(cores, measured, messages):
    cores(2)
    timed = measured(Rates(1, 10))
    assert number_for(KnownThreads("", 3, 1)) == 3
    assert timed == []
    assert messages == ["threads: 3, as recorded by the run; the share of a rank is 2: --threads 2 uses it"]


def test_with_another_world_size_the_number_is_timed_again(cores, measured, monkeypatch):
    """Sums over another number of ranks are not bit-identical anyway, and the shares differ."""
    monkeypatch.setattr(cpu_threads, "configure_model", lambda trainer: None)
    cores(4)
    timed = measured(Rates(10, 1))
    assert number_for(KnownThreads("", 4, 1), processes=2, strategy=DDPOnCPU()) == 1
    assert timed == [2]


@pytest.mark.parametrize(("recorded", "number"), [(None, 2), (1, 1), (2, 2), (8, 2)])
def test_an_evaluation_uses_the_recorded_number_within_its_share(cores, measured, recorded, number):
    cores(2)
    timed = measured(Rates(1, 10))
    assert number_for(KnownThreads("", recorded, 1), "test") == number
    assert timed == []


def test_nothing_is_changed_or_recorded_on_a_gpu(cores, measured, messages):
    cores(4)
    timed = measured(Rates(1, 10))
    before, trainer = torch.get_num_threads(), a_trainer(strategy=SimpleNamespace(root_device=torch.device("cuda")))
    CpuThreads(KnownThreads()).setup(trainer, None, "fit")
    CpuThreads(KnownThreads()).on_save_checkpoint(trainer, None, checkpoint := {})
    assert (torch.get_num_threads(), checkpoint, timed, messages) == (before, {}, [], [])


def test_threads_are_not_timed_where_passes_before_training_are_not_possible():
    undivided, divided = (SimpleNamespace(supports_grad_accumulation=splits) for splits in (False, True))
    assert reason_not_timed(a_trainer(), undivided) == reason_not_timed(a_trainer(2), divided) == ""
    assert "samples of all ranks" in reason_not_timed(a_trainer(2), undivided)
    sharded = a_trainer(strategy=FSDPStrategy.__new__(FSDPStrategy))
    assert reason_not_timed(sharded, divided) == "FSDPStrategy shards the weights"


# -- timing ----------------------------------------------------------------------------------------------------------


class Network(torch.nn.Module):
    """Has all kinds of state that a pass can change."""

    def __init__(self):
        super().__init__()
        self.linear, self.norm = torch.nn.Linear(FEATURES, 1), torch.nn.BatchNorm1d(1)
        self.sizes, self.fails_above = [], math.inf

    def training_loss(self, batch):
        self.sizes.append((len(batch.samples), torch.get_num_threads()))
        if len(batch.samples) > self.fails_above:
            raise RuntimeError("too many")
        loss = self.norm(torch.nn.functional.dropout(self.linear(batch.features))).square().sum()
        self.log("train/x", loss)
        return LossSum(loss, torch.tensor(len(batch.samples)))


@pytest.fixture
def tiny(monkeypatch):
    """Every pass takes 4 ms."""
    monkeypatch.setattr(thread_timing, "_MIN_SECONDS", 0.01)
    monkeypatch.setattr(
        thread_timing, "all_reduce_max", lambda number, device: 0.004 if 0 < number < math.inf else number
    )
    trainer = a_trainer()
    trainer.datamodule = TinyData(batch_size=8)
    trainer.datamodule.setup("fit")
    return trainer


def test_passes_alternate_and_leave_no_trace(tiny):
    torch.manual_seed(1)
    network, before = Network(), torch.get_num_threads()
    state, drawn = {name: value.clone() for name, value in network.state_dict().items()}, torch.get_rng_state()
    assert time_threads(tiny, network, 2) == Rates(8 / 0.004, 8 / 0.004)
    assert network.sizes == [(8, number) for number in (2, 2, 1, 1, 2, 1, 2)]
    assert all(torch.equal(state[name], value) for name, value in network.state_dict().items())
    assert torch.equal(drawn, torch.get_rng_state())
    assert torch.get_num_threads() == before
    assert all(parameter.grad is None for parameter in network.parameters())
    assert not hasattr(network, "log")


def test_long_passes_have_fewer_samples(tiny, monkeypatch):
    """Five fit: 8 samples take 4 s with 4 threads, so up to 16 s with one."""
    taken = {8: 4.0, 5: 0.6}
    network = Network()
    monkeypatch.setattr(thread_timing, "all_reduce_max", lambda number, device: number and taken[network.sizes[-1][0]])
    rates = time_threads(tiny, network, 4)
    assert {size for size, _ in network.sizes} == {8, 5}
    assert rates == Rates(5 / 0.6, 5 / 0.6)
    taken[8] = 40.0
    assert time_threads(tiny, network, 4) is None, "one sample takes 5 s with 4 threads"


@pytest.mark.parametrize("failing", ["pass", "load"])
def test_an_error_is_left_to_training(tiny, failing):
    network, before = Network(), torch.get_num_threads()
    network.fails_above = 4
    if failing == "load":
        tiny.datamodule = TinyData(batch_size=8, length=8, fault="raise", fault_sample=3)
        tiny.datamodule.setup("fit")
    assert time_threads(tiny, network, 2) is None
    assert len(network.sizes) == (1 if failing == "pass" else 0)
    assert torch.get_num_threads() == before


# -- a run -----------------------------------------------------------------------------------------------------------


def test_a_run_records_its_number_and_resumes_with_it_bit_for_bit(lockstep, cores, monkeypatch, messages):
    """The timing is real, but one thread is forced, because two are slow while other tests run."""
    monkeypatch.setattr(thread_timing, "_MIN_SECONDS", 0.05)
    monkeypatch.setattr(cpu_threads, "_MIN_SPEEDUP", math.inf)
    monkeypatch.setenv("OMP_NUM_THREADS", "")
    cores(2)
    run = lockstep("fit", *TINY, "--trainer.max_steps", "2", name="a")
    assert json.loads((run.folder / "environment.json").read_text())["threads"] == 1
    assert any(line.startswith("threads: 1 of 2 (") for line in messages)
    monkeypatch.setattr(cpu_threads, "time_threads", lambda *_: pytest.fail("timed again"))
    torch.set_num_threads(2)
    lockstep("fit", *TINY, "--trainer.max_steps", "4", "--ckpt_path", "last", name="a")
    torch.set_num_threads(2)
    lockstep("test", *TINY, "--ckpt_path", "last", name="a")
    assert torch.get_num_threads() == 1
    assert messages.count("threads: 1, as recorded by the run") == 2
    stated = lockstep("fit", *TINY, "--trainer.max_steps", "4", "--threads", "1", name="b")
    resumed, whole = (torch.load(run.folder / "checkpoints/last.ckpt", weights_only=True) for run in (run, stated))
    assert resumed["threads"] == whole["threads"] == {"number": 1, "processes": 1}
    assert all(torch.equal(resumed["state_dict"][key], weight) for key, weight in whole["state_dict"].items())

"""Tests workers of each start method: the message about a dead or hanging worker names its sample."""

import multiprocessing
import os
import signal
import threading

import numpy as np
import pytest
import torch

from engine.data.dataloader import LoadingError
from engine.data.worker_process import Workers, report_position
from engine.datamodule import LockstepDataModule
from tests.support.fake_trainer import fake_trainer
from tests.tiers import slow


class OneByOne:
    """Returns the samples of a request. At one of them, the process that loads it dies or hangs."""

    def __init__(self, fault=None, sample=-5):
        self.fault, self.sample = fault, sample

    def __len__(self):
        return 12

    def __getitem__(self, request):
        for index in request.indices.tolist():
            report_position(index)
            if index == self.sample:
                if self.fault == "kill":
                    os.kill(os.getpid(), signal.SIGKILL)
                threading.Event().wait()  # for ever
        return np.array(request.indices)


class Data(LockstepDataModule):
    trainer = None

    def __init__(self, data, **loading):
        super().__init__(evaluation_batch_size=3, **loading)
        self.validation_set = data


def loaded(batches):
    return [batch.tolist() for batch in batches]


@pytest.mark.parametrize("start", ["fork", slow("forkserver"), slow("spawn")])
def test_the_sample_of_a_killed_worker_is_named(start):
    location = r"loading evaluation batch 2 of epoch 0 \(samples 6, 7, 8\), at sample 7"
    with pytest.raises(LoadingError, match=location + r" failed: .*worker .*(exited unexpectedly|[Kk]illed)"):
        loaded(Data(OneByOne("kill", 7), num_workers=2, worker_start=start).val_dataloader())


def test_the_sample_of_a_hanging_worker_is_named_after_the_timeout():
    with pytest.raises(
        LoadingError, match=r"evaluation batch 1 of .* \(samples 3, 4, 5\), at sample 5 failed: .*timed out after 3"
    ):
        loaded(Data(OneByOne("hang", 5), num_workers=1, worker_timeout=3).val_dataloader())


@pytest.mark.skipif("forkserver" not in multiprocessing.get_all_start_methods(), reason="no forkserver here")
def test_a_signal_of_the_scheduler_does_not_end_the_forkserver():
    """Its workers would end with it, in the middle of the step that is to be saved."""
    from multiprocessing import forkserver

    loader = Data(OneByOne(), num_workers=1, worker_start="forkserver").val_dataloader()
    batches = iter(loader)
    first = next(batches)
    os.kill(forkserver._forkserver._forkserver_pid, signal.SIGTERM)
    assert loaded([first, *batches]) == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]]
    assert loaded(loader)[0] == [0, 1, 2]  # the same workers once more: they are persistent
    assert len(multiprocessing.active_children()) >= 1


def test_without_workers_no_process_is_started():
    data = Data(OneByOne(), num_workers=0, worker_start="spawn", worker_timeout=5)
    assert loaded(data.val_dataloader())[3] == [9, 10, 11]


class ThreadsOfWorker(OneByOne):
    """Each sample is the number of threads of the process that loads it."""

    def __getitem__(self, request):
        return np.full(len(request.indices), torch.get_num_threads())


def test_a_worker_has_one_thread_whatever_the_training_has():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        batches = list(Data(ThreadsOfWorker(), num_workers=1, worker_start="fork").val_dataloader())
        assert torch.get_num_threads() == 2
        assert {int(number) for batch in batches for number in batch} == {1}
    finally:
        torch.set_num_threads(before)


def test_auto_leaves_a_cpu_to_the_training(monkeypatch, caplog):
    monkeypatch.setattr("engine.data.loader_factory.available_cpus", lambda: 4.0)
    monkeypatch.setattr("torch.get_num_threads", lambda: 1)
    with caplog.at_level("INFO", "lockstep"):
        assert Data(OneByOne(), num_workers="auto").workers == 3
    assert "data.num_workers auto: 3 (4 cores for 1 processes here, each computing with 1)" in caplog.text
    assert type("InMemory", (Data,), {"is_in_memory": True})(OneByOne(), num_workers="auto").workers == 0
    monkeypatch.setattr("torch.get_num_threads", lambda: 4)  # the model computes with all of them
    assert Data(OneByOne(), num_workers="auto").workers == 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_workers": -1}, "num_workers must be 0 or more, or auto; got -1"),
        ({"prefetch_factor": 0, "num_workers": 1}, "prefetch_factor must be at least 1, got 0"),
        ({"worker_timeout": -1.0}, "worker_timeout must be at least 0, got -1.0"),
        ({"max_bad_samples": -1}, "max_bad_samples must be at least 0, got -1"),
    ],
)
def test_invalid_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Data(OneByOne(), **settings)


@pytest.mark.parametrize(
    ("workers", "setting", "used"),
    [(0, {}, None), (0, {"prefetch_factor": 2}, None), (2, {}, 2), (2, {"prefetch_factor": 5}, 5)],
)
def test_workers_load_as_many_batches_ahead_as_set(workers, setting, used):
    data = Data(OneByOne(), num_workers=workers, **setting)
    loader = data.val_dataloader()
    assert loader.prefetch_factor == used
    assert loaded(loader) == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]]


class ProcessOfWorker(OneByOne):
    """Each sample is the id of the process that loads it."""

    def __getitem__(self, request):
        return np.full(len(request.indices), os.getpid())


@pytest.mark.parametrize(("setting", "lasting"), [({}, True), ({"persistent_workers": False}, False)])
def test_workers_last_for_several_epochs_unless_they_are_not_to(setting, lasting):
    loader = Data(ProcessOfWorker(), num_workers=1, worker_start="fork", **setting).val_dataloader()
    first, second = ({int(number) for batch in loader for number in batch} for _ in range(2))
    assert len(first) == len(second) == 1
    assert (first == second) == lasting
    assert os.getpid() not in first | second


def test_persistence_without_workers_has_no_effect():
    assert Data(OneByOne(), persistent_workers=True).val_dataloader().persistent_workers is False


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("pin_memory", [True, False])
def test_memory_is_pinned_on_gpus_unless_it_is_switched_off(device, pin_memory):
    data = Data(OneByOne(), pin_memory=pin_memory)
    data.trainer = fake_trainer(device=device)
    assert data.val_dataloader().pin_memory == (pin_memory and device == "cuda")


def test_an_unavailable_start_method_is_refused(monkeypatch):
    monkeypatch.setattr("multiprocessing.get_all_start_methods", lambda: ["spawn"])
    with pytest.raises(ValueError, match="worker_start is fork, but this platform has spawn"):
        Workers(1, "fork")

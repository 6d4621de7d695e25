"""Workers by each way to start them; one that dies, or stands still, is named with the sample it was at."""

import multiprocessing
import os
import signal
import threading

import numpy as np
import pytest

from engine.datamodule import LockstepDataModule
from engine.loading import LoadingError
from engine.workers import Workers, at


class OneByOne:
    """Gives the samples of a draw; at one of them something happens to whoever loads it."""

    def __init__(self, fault=None, sample=-5):
        self.fault, self.sample = fault, sample

    def __len__(self):
        return 12

    def __getitem__(self, draw):
        for index in draw.indices.tolist():
            at(index)
            if index == self.sample:
                if self.fault == "kill":
                    os.kill(os.getpid(), signal.SIGKILL)
                threading.Event().wait()  # for ever
        return np.array(draw.indices)


class Data(LockstepDataModule):
    trainer = None

    def __init__(self, data, **loading):
        super().__init__(evaluation_batch_size=3, **loading)
        self.validation_set = data


def loaded(batches):
    return [batch.tolist() for batch in batches]


@pytest.mark.parametrize("start", multiprocessing.get_all_start_methods())
def test_a_killed_worker_is_named_with_the_sample_it_was_at(start):
    place = r"loading evaluation batch 2 of epoch 0 \(samples 6, 7, 8\), at sample 7"
    with pytest.raises(LoadingError, match=place + r" failed: .*worker .*(exited unexpectedly|[Kk]illed)"):
        loaded(Data(OneByOne("kill", 7), num_workers=2, worker_start=start).val_dataloader())


def test_a_worker_that_stands_still_is_named_after_the_time_out():
    with pytest.raises(
        LoadingError, match=r"evaluation batch 1 of .* \(samples 3, 4, 5\), at sample 5 failed: .*timed out after 3"
    ):
        loaded(Data(OneByOne("hang", 5), num_workers=1, worker_timeout=3).val_dataloader())


@pytest.mark.skipif("forkserver" not in multiprocessing.get_all_start_methods(), reason="no forkserver here")
def test_what_a_scheduler_sends_to_all_does_not_end_the_forkserver():
    """Its workers would end with it, in the middle of the step that is to be saved."""
    from multiprocessing import forkserver

    loader = Data(OneByOne(), num_workers=1, worker_start="forkserver").val_dataloader()
    batches = iter(loader)
    first = next(batches)
    os.kill(forkserver._forkserver._forkserver_pid, signal.SIGTERM)
    assert loaded([first, *batches]) == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]]
    assert loaded(loader)[0] == [0, 1, 2]  # the same workers once more: they are persistent
    assert len(multiprocessing.active_children()) >= 1


def test_without_workers_nothing_is_started_or_timed():
    data = Data(OneByOne(), num_workers=0, worker_start="spawn", worker_timeout=5)
    assert loaded(data.val_dataloader())[3] == [9, 10, 11]


def test_auto_leaves_a_core_to_what_computes(monkeypatch, caplog):
    monkeypatch.setattr("engine.datamodule.usable_cores", lambda: 4.0)
    monkeypatch.setattr("torch.get_num_threads", lambda: 1)
    with caplog.at_level("INFO", "lockstep"):
        assert Data(OneByOne(), num_workers="auto").workers == 3
    assert "data.num_workers auto: 3 (4 cores for 1 processes here, each computing with 1)" in caplog.text
    assert type("InMemory", (Data,), {"loads_at_once": True})(OneByOne(), num_workers="auto").workers == 0
    monkeypatch.setattr("torch.get_num_threads", lambda: 4)  # the model computes with all of them
    assert Data(OneByOne(), num_workers="auto").workers == 0


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"num_workers": -1}, "num_workers must be 0 or more, or auto; got -1"),
        ({"worker_timeout": -1.0}, "worker_timeout is in seconds"),
        ({"max_bad_samples": -1}, "max_bad_samples is a number of samples"),
    ],
)
def test_wrong_settings(settings, said):
    with pytest.raises(ValueError, match=said):
        Data(OneByOne(), **settings)


def test_a_start_that_the_platform_lacks(monkeypatch):
    monkeypatch.setattr("multiprocessing.get_all_start_methods", lambda: ["spawn"])
    with pytest.raises(ValueError, match="worker_start is fork, but this platform has spawn alone"):
        Workers(1, "fork")

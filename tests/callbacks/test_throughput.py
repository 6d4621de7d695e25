"""How fast, and how much of it waiting. The clock is the test's own."""

from types import SimpleNamespace

import pytest

from callbacks import throughput
from callbacks.throughput import Throughput


class Clock:
    now = 0.0

    def perf_counter(self):
        return self.now


@pytest.fixture
def watched(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(throughput, "time", clock)
    trainer = SimpleNamespace(
        global_step=0,
        log_every_n_steps=5,
        datamodule=SimpleNamespace(plan=SimpleNamespace(batch_size=64)),
        train_dataloader=SimpleNamespace(waited=0.0),
    )
    logged: list[dict[str, float]] = []
    module = SimpleNamespace(log_dict=lambda figures, **_: logged.append(figures))
    return Throughput(), trainer, module, clock, logged


def train(watched, steps, seconds, waited=0.0, micro_batches=1):
    callback, trainer, module, clock, _ = watched
    for _ in range(steps):
        trainer.train_dataloader.waited += waited
        clock.now += seconds
        for micro in range(micro_batches):
            trainer.global_step += micro == micro_batches - 1
            callback.on_train_batch_end(trainer, module, None, None, 0)


def test_samples_of_all_processes_and_the_share_of_waiting(watched):
    callback, trainer, module, _, logged = watched
    callback.on_train_start(trainer, module)
    train(watched, steps=10, seconds=0.5, waited=0.1)
    expected = {"train/samples_per_second": 64 / 0.5, "train/data_wait": 0.2}
    assert logged == [pytest.approx(expected)] * 2


def test_optimizer_steps_count_and_not_micro_batches(watched):
    callback, trainer, module, _, logged = watched
    callback.on_train_start(trainer, module)
    train(watched, steps=5, seconds=1.0, micro_batches=4)
    assert [figures["train/samples_per_second"] for figures in logged] == [64]


def test_validation_does_not_count(watched):
    callback, trainer, module, clock, logged = watched
    callback.on_validation_start(trainer, module)  # the sanity check, before any training
    callback.on_validation_end(trainer, module)
    callback.on_train_start(trainer, module)
    train(watched, steps=3, seconds=1.0)
    callback.on_validation_start(trainer, module)
    clock.now += 1000
    callback.on_validation_end(trainer, module)
    train(watched, steps=2, seconds=1.0)
    assert [figures["train/samples_per_second"] for figures in logged] == [64]


def test_a_resumed_run_starts_its_clock_at_its_step(watched):
    callback, trainer, module, _, logged = watched
    trainer.global_step, trainer.train_dataloader.waited = 1000, 50.0
    callback.on_train_start(trainer, module)
    train(watched, steps=5, seconds=2.0, waited=1.0)
    assert logged == [pytest.approx({"train/samples_per_second": 32, "train/data_wait": 0.5})]

"""Tests throughput, model FLOPs utilization and data wait, with a fake clock."""

from types import SimpleNamespace

import pytest
import torch

from callbacks.performance import peak_flops as module
from callbacks.performance import throughput
from callbacks.performance.peak_flops import peak_flops
from callbacks.performance.throughput import Throughput
from engine.distributed.step_counters import StepCounters
from tests.conftest import TINY
from tests.support.fake_trainer import fake_trainer
from tests.support.families.tiny_temporal import TINY_TEMPORAL

AMOUNTS = {"tokens": 30.0, "positions": 40.0, "image_tokens": 20.0, "flops": 3e12}


class Clock:
    now = 0.0

    def perf_counter(self):
        return self.now


class FakeRun:
    """The callback in a training with a world size of 2 whose ranks do the same."""

    def __init__(self, amounts=None, peak_tflops=None):
        self.clock, self.logged = Clock(), []
        self.callback = Throughput(peak_tflops)
        self.plan = SimpleNamespace(batch_size=64)
        self.trainer = fake_trainer(
            ranks=2,
            log_every_n_steps=5,
            datamodule=SimpleNamespace(
                plan=self.plan, num_workers=0, batch_size_per_device=None, samples_in_step=lambda index: 64
            ),
            train_dataloader=SimpleNamespace(waited=0.0),
            precision="bf16-mixed",
        )
        self.module = SimpleNamespace(
            log_dict=lambda metrics, **_: self.logged.append(metrics),
            counters=StepCounters(),
            throughput_counts=lambda batch: dict(amounts or {}),
        )

    def start(self):
        self.callback.on_train_start(self.trainer, self.module)

    def train(self, steps, seconds, waited=0.0, micro_batches=1):
        self.trainer.accumulate_grad_batches = micro_batches
        for step in range(steps):
            self.trainer.train_dataloader.waited += waited
            self.clock.now += seconds
            for micro in range(micro_batches):
                self.callback.on_train_batch_start(self.trainer, self.module, None, micro)
                if micro == micro_batches - 1:
                    self.trainer.global_step += 1
                    self.module.counters.accumulate(
                        2 * torch.tensor(self.module.counters.pop_pending(), dtype=torch.float64)
                    )
                index = step * micro_batches + micro
                self.callback.on_train_batch_end(self.trainer, self.module, None, None, index)


@pytest.fixture
def fake_run(monkeypatch):
    def create(**options):
        run = FakeRun(**options)
        monkeypatch.setattr(throughput, "time", run.clock)
        return run

    return create


def test_the_time_in_which_the_device_finishes_its_steps_is_counted(fake_run, monkeypatch):
    run = fake_run()
    run.start()
    total = run.module.counters.total

    def total_after_the_device(name):
        run.clock.now += 7.5  # reading a counter waits for the steps that the device has not finished
        return total(name)

    monkeypatch.setattr(run.module.counters, "total", total_after_the_device)
    run.train(steps=10, seconds=0.5)
    rate = 5 * 64 / (5 * 0.5 + 7.5)
    assert [metrics["train/samples_per_second"] for metrics in run.logged] == [pytest.approx(rate)] * 2


def test_samples_of_all_ranks_and_the_share_of_waiting(fake_run):
    run = fake_run()
    run.start()
    run.train(steps=10, seconds=0.5, waited=0.1)
    expected = {"train/samples_per_second": 64 / 0.5, "train/data_wait": 0.2}
    assert run.logged == [pytest.approx(expected)] * 2


def test_long_waits_for_data_log_one_warning_with_the_option_to_change(fake_run, messages):
    run = fake_run()
    run.start()
    run.train(steps=3 * 5, seconds=2.0, waited=1.5)  # the first logs, while workers start
    for _ in range(3):
        run.train(steps=4 * 5, seconds=2.0, waited=1.0)
        run.train(steps=5, seconds=2.0, waited=0.2)
    run.train(steps=40 * 5, seconds=0.01, waited=0.005)
    assert messages == [], "rare or short waits log no warning"
    run.train(steps=5 * 5, seconds=2.0, waited=1.0)
    (line,) = messages
    assert line.startswith("training waits for data 50% of the time")
    assert "train/data_wait" in line
    assert "First change: --data.init_args.num_workers auto, or more than 0" in line
    run.train(steps=20 * 5, seconds=2.0, waited=1.0)
    assert len(messages) == 1
    other = fake_run()
    vars(other.trainer.datamodule).update(num_workers="auto", workers=2, is_in_memory=False)
    other.start()
    other.train(steps=8 * 5, seconds=2.0, waited=1.0)
    assert "give the job more cores; num_workers auto is 2 on the available ones" in messages[-1]


def test_optimizer_steps_count_and_not_micro_batches(fake_run):
    run = fake_run()
    run.start()
    run.train(steps=5, seconds=1.0, micro_batches=4)
    assert [metrics["train/samples_per_second"] for metrics in run.logged] == [64]


def test_an_interval_of_zero_logs_nothing_and_reads_no_counter(fake_run):
    run = fake_run()
    run.trainer.log_every_n_steps = 0
    run.start()
    run.module.counters.total = None  # reading it would wait for the device
    run.train(steps=5, seconds=1.0, micro_batches=4)
    assert run.logged == []


def test_amounts_are_summed_over_ranks_and_micro_batches(fake_run):
    run = fake_run(amounts=AMOUNTS, peak_tflops=12)
    run.start()
    run.train(steps=10, seconds=0.5, micro_batches=3)
    second = 3 * 2 / 0.5  # micro-batches of both processes
    expected = {
        "train/samples_per_second": 128,
        "train/data_wait": 0,
        "train/tokens_per_second": 30 * second,
        "train/image_tokens_per_second": 20 * second,
        "train/real_tokens": 0.75,
        "train/tflops": 3 * second,
        "train/mfu": 3 * second / (2 * 12),
    }
    assert run.logged == [pytest.approx(expected)] * 2


def test_without_a_known_peak_there_is_no_mfu(fake_run):
    run = fake_run(amounts=AMOUNTS)
    run.start()
    run.train(steps=5, seconds=1.0)
    (metrics,) = run.logged
    assert metrics["train/tflops"] == 6
    assert "train/mfu" not in metrics


def test_validation_does_not_count(fake_run):
    run = fake_run()
    run.callback.on_validation_start(run.trainer, run.module)  # the sanity check, before any training
    run.callback.on_validation_end(run.trainer, run.module)
    run.start()
    run.train(steps=3, seconds=1.0)
    run.callback.on_validation_start(run.trainer, run.module)
    run.clock.now += 1000
    run.callback.on_validation_end(run.trainer, run.module)
    run.train(steps=2, seconds=1.0)
    assert [metrics["train/samples_per_second"] for metrics in run.logged] == [64]


def test_a_resumed_run_starts_its_clock_at_its_step(fake_run):
    run = fake_run(amounts=AMOUNTS)
    run.trainer.global_step, run.trainer.train_dataloader.waited = 1000, 50.0
    run.start()
    run.train(steps=5, seconds=2.0, waited=1.0)
    (metrics,) = run.logged
    assert metrics["train/samples_per_second"] == 32
    assert metrics["train/data_wait"] == pytest.approx(0.5)
    run.start()  # a second fit of the same module
    run.train(steps=5, seconds=1.0)
    assert run.logged[1]["train/data_wait"] == 0
    assert run.logged[1]["train/tokens_per_second"] == 60


def test_peaks_are_dense_and_of_the_precision(monkeypatch):
    def peak(name, capability, precision):
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: name)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
        return peak_flops(torch.device("cuda"), precision)

    assert peak("NVIDIA H100 80GB HBM3", (9, 0), "bf16-mixed") == 989.4e12
    assert peak("NVIDIA H100 PCIe", (9, 0), "16-mixed") == 756.5e12
    assert peak("NVIDIA L40S", (8, 9), "bf16-true") == 362.05e12
    assert peak("Tesla T4", (7, 5), "16-mixed") == 65e12
    assert peak("Tesla T4", (7, 5), "bf16-mixed") is None
    assert peak("NVIDIA A100-SXM4-80GB", (8, 0), "32-true") is None
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: "high")
    assert peak("NVIDIA A100-SXM4-80GB", (8, 0), "32-true") == 156e12
    assert peak("NVIDIA A100-SXM4-80GB", (8, 0), "64-true") is None
    for unknown in ("Some GPU", "NVIDIA RTX A4000", "NVIDIA RTX A1000", "NVIDIA A10G", "NVIDIA T400"):
        assert peak(unknown, (9, 0), "bf16-mixed") is None, "its name only begins as that of another GPU"
    for variant in ("GeForce RTX 3090 Ti", "GeForce RTX 4090 Laptop GPU", "GeForce RTX 4090 D"):
        assert peak(f"NVIDIA {variant}", (8, 9), "bf16-mixed") is None
    assert peak("NVIDIA GeForce RTX 4090", (8, 9), "bf16-mixed") == 165.2e12
    assert peak("NVIDIA GH200 480GB", (9, 0), "bf16-mixed") == 989.4e12
    assert peak_flops(torch.device("cpu"), "bf16-mixed") is None
    names = list(module._TFLOPS)
    assert all(before not in name for index, name in enumerate(names) for before in names[:index]), "the first counts"


def test_a_peak_is_positive():
    with pytest.raises(ValueError, match="throughput.peak_tflops must be more than 0, got 0"):
        Throughput(0)


def test_a_family_that_counts_no_operations_logs_no_tflops(lockstep):
    run = lockstep("fit", *TINY, "--trainer.max_steps", "3", name="a")
    assert all(speed > 0 for speed in run.series("train/samples_per_second").values())
    assert all(0 <= share <= 1 for share in run.series("train/data_wait").values())
    assert not run.series("train/tflops")


def test_a_family_that_counts_logs_tokens_tflops_and_mfu(lockstep):
    options = ["--throughput.peak_tflops", "0.001", "--trainer.max_steps", "3"]
    run = lockstep("fit", *TINY_TEMPORAL, *options, name="a")
    tokens, supervised, features, flops, share, real = (
        list(run.series(f"train/{name}").values())
        for name in (
            "tokens_per_second",
            "supervised_tokens_per_second",
            "feature_tokens_per_second",
            "tflops",
            "mfu",
            "real_tokens",
        )
    )
    assert len(tokens) == len(real) == len(flops) == 3
    assert all(all_of > some + other > 0 for all_of, some, other in zip(tokens, supervised, features, strict=True))
    assert all(0.5 < part <= 1 for part in real)
    assert share == pytest.approx([1000 * value for value in flops])


def test_an_epoch_with_fewer_samples_than_the_batch_is_reported(fake_run, messages):
    """The batch size may be mistyped."""
    run = fake_run()
    run.plan.batch_size, run.trainer.datamodule.samples_in_step = 10**12, lambda index: 50
    run.start()
    run.train(5, seconds=1.0)
    assert run.logged[0]["train/samples_per_second"] == 50
    assert messages == [
        "data.init_args.batch_size is 1000000000000, but an epoch has 50 samples, so a step has no more; "
        "lower it to at most 50"
    ]


def test_the_option_that_set_the_batch_size_is_named(fake_run, messages):
    run = fake_run()  # of two ranks
    datamodule = run.trainer.datamodule
    datamodule.batch_size_per_device, run.plan.batch_size = 32, 64
    datamodule.samples_in_step = lambda index: 51
    run.start()
    assert messages == [
        "data.init_args.batch_size_per_device is 32, but an epoch has 51 samples, so a step has no more; "
        "lower it to at most 25"
    ]


def test_a_smaller_last_step_of_an_epoch_counts_its_samples_only(fake_run):
    run = fake_run()
    run.trainer.datamodule.samples_in_step = lambda index: 64 if index < 4 else 1
    run.start()
    run.train(5, seconds=0.5, micro_batches=2)
    assert run.logged[0]["train/samples_per_second"] == (4 * 64 + 1) / (5 * 0.5)

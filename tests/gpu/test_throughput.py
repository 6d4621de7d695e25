"""Compares the throughput metrics with torch's profiler and its count of operations."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

from tests.support.device.optional_packages import needs
from tests.support.device.options import on, quiet
from tests.support.families.tiny_temporal import QUICKSTART

PEAK = 100.0  # TFLOPS, as given to the run
EVERY = 3  # steps from log to log
FIRST, LAST, COUNTED = EVERY, 2 * EVERY, 2 * EVERY + 2
"""Finished steps at the begin and the end of the interval that is compared, and the step whose operations torch
counts."""


class Profiled(Callback):
    """Writes profiled.json: times of the interval by the clock and by the profiler, and the operations of a step."""

    def __init__(self) -> None:
        self.found: dict[str, float] = {}

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        on_gpu = trainer.strategy.root_device.type == "cuda"
        if trainer.global_step == FIRST - 1:  # a step early: its start takes time, and is not in the interval
            self.profiler = profile(activities=[ProfilerActivity.CUDA if on_gpu else ProfilerActivity.CPU])
            self.profiler.start()
        if trainer.global_step == LAST:  # what precedes it has been logged
            self.profiler.stop()
            name = "self_device_time_total" if on_gpu else "self_cpu_time_total"
            busy = sum(getattr(event, name) for event in self.profiler.key_averages()) / 1e6
            self.found["busy"] = busy * (LAST - FIRST) / (LAST - FIRST + 1)
        if trainer.global_step == COUNTED - 1:
            self.found["flops"] = pl_module.throughput_counts(batch)["flops"]
            self.kernel, self.counter = sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False)
            self.kernel.__enter__()  # torch counts the products of this form on every device
            self.counter.__enter__()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if trainer.global_step == FIRST:
            self.start = time.perf_counter()
        if trainer.global_step == LAST:
            self.found["seconds"] = time.perf_counter() - self.start
        if trainer.global_step == COUNTED:
            self.counter.__exit__(None, None, None)
            self.kernel.__exit__(None, None, None)
            self.found["torch_flops"] = self.counter.get_total_flops()
            (Path(trainer.default_root_dir) / "profiled.json").write_text(json.dumps(self.found))


@needs("language")
@pytest.mark.slow
def test_time_operations_and_their_share_of_the_peak_are_measured(device, workplace, record_property):
    options = [
        "--config",
        str(QUICKSTART),
        *on(device, "bf16-mixed"),
        *quiet(COUNTED + 1),
        "--trainer.log_every_n_steps",
        str(EVERY),
        "--trainer.limit_val_batches",
        "0",
        "--model.init_args.optimizer",
        "adamw",  # torch would count the products of Muon, too
        "--data.init_args.batch_size",
        "8",
        "--throughput.peak_tflops",
        str(PEAK),
        "--trainer.callbacks+=tests.gpu.test_throughput.Profiled",
    ]
    run = workplace.run("fit", *options, name="profiled")
    found = json.loads((run.folder / "profiled.json").read_text())
    rate, tflops, mfu = (run.series(f"train/{name}")[LAST] for name in ("samples_per_second", "tflops", "mfu"))
    seconds = (LAST - FIRST) * 8 / rate
    record_property("profiled", {**found, "metric_seconds": seconds, "tflops": tflops, "mfu": mfu})
    assert seconds == pytest.approx(found["seconds"], rel=0.25, abs=0.05)
    assert 0 < found["busy"] <= 1.5 * seconds, "the clock is read when the device is done; steps differ in length"
    assert mfu == pytest.approx(tflops / PEAK, rel=1e-3)
    assert found["flops"] == pytest.approx(found["torch_flops"], rel=0.05)
    assert tflops * 1e12 * seconds == pytest.approx((LAST - FIRST) * found["flops"], rel=0.3), "steps differ in length"


def test_the_peak_of_this_gpu_is_known(device, workplace, record_property):
    name, peak = workplace.call(name_and_peak, device)
    record_property("peak_tflops", peak and peak / 1e12)
    if device == "cpu":
        assert peak is None
    elif peak is None:
        pytest.skip(f"the table of callbacks/performance/peak_flops.py has no {name}")


def name_and_peak(device: str) -> tuple[str, float | None]:
    from callbacks.performance.peak_flops import peak_flops

    name = torch.cuda.get_device_name(0) if device == "cuda" else "CPU"
    return name, peak_flops(torch.device(device), "bf16-mixed")

"""Tests what the doctor predicts about the loaders from the time of a sample and of a step."""

import numpy as np
import pytest
import torch

from commands.doctor.training import loader_throughput
from commands.doctor.training.loader_throughput import (
    planned_workers,
    predict_throughput,
    throughput_finding,
    time_loading,
)
from engine.data.dataloader import PendingSampler, SkipBadSamples, TimedDataLoader
from engine.data.errors import BadSampleError
from engine.data.samplers import TrainSampler


@pytest.mark.parametrize(
    "sample, step, workers, needed, waits",
    [
        (0.001, 0.640, 0, 1, 0.5),  # 640 samples take 0.64 s in the process, as long as the step
        (0.001, 0.640, 1, 1, 0.0),
        (0.001, 0.200, 2, 4, 0.375),
        (0.001, 0.200, 4, 4, 0.0),
        (0.000_01, 0.640, 0, 0, 0.0064 / 0.6464),  # hidden in the step
    ],
)
def test_the_pace_of_loading_tells_workers_and_waits(sample, step, workers, needed, waits):
    pace = predict_throughput(sample, 640, step, workers)
    assert pace.needed == needed
    assert pace.waiting_share == pytest.approx(waits)


def test_a_gpu_that_would_wait_is_a_warning_with_the_number_of_workers(monkeypatch):
    monkeypatch.setattr(loader_throughput, "available_cpus", lambda: 8.0)
    slow = throughput_finding(0.004, 64, 0.05, torch.device("cuda"), 2, ranks_per_node=1)
    assert slow.status == "warn"
    assert slow.why == "the device would wait 61% of the time for its data"
    assert slow.found == (
        "a sample takes 4 ms of a core (250 a second), a step of 64 50 ms on cuda: 6 workers feed it; 2 workers are set"
    )
    assert slow.remedy == "--data.init_args.num_workers 6"
    two = throughput_finding(0.004, 64, 0.05, torch.device("cuda"), 2, ranks_per_node=2)
    assert two.remedy == "--data.init_args.num_workers 6  # needs 14 cores, of 8 here"
    assert throughput_finding(0.004, 64, 0.05, torch.device("cuda"), 6, ranks_per_node=2).status == "ok"
    fed = throughput_finding(0.004, 64, 0.5, torch.device("cpu"), 0, ranks_per_node=1)
    assert fed.status == "ok"
    assert fed.found.endswith(" on cpu: 1 worker feeds it; 0 workers are set")
    assert "the training process feeds it" in throughput_finding(1e-6, 8, 0.1, torch.device("cuda"), 0, 1).found


def test_auto_workers_share_the_cores_of_the_machine(monkeypatch):
    monkeypatch.setattr(loader_throughput, "available_cpus", lambda: 8.0)
    assert planned_workers(3, 1, on_gpu=True, in_memory=True) == 3
    assert planned_workers("auto", 2, on_gpu=True, in_memory=False) == 3
    assert planned_workers("auto", 2, on_gpu=True, in_memory=True) == 0
    assert planned_workers("auto", 1, on_gpu=False, in_memory=False) == 8 - torch.get_num_threads()


class Samples:
    """Loads a number in a known time of a core, by a clock of its own."""

    def __init__(self, clock: list[float]) -> None:
        self.clock = clock

    def __len__(self) -> int:
        return 40

    def __getitem__(self, request):
        if 39 in request.indices and self.clock[0] > 1e9:
            raise BadSampleError("39 is corrupt")
        self.clock[0] += 0.25 * len(request.indices)
        return torch.from_numpy(np.asarray(request.indices))


@pytest.mark.parametrize("start, expected", [(0.0, 0.25), (2e9, None)])
def test_a_sample_is_measured_without_disturbing_the_loader(monkeypatch, start, expected):
    clock = [start]
    monkeypatch.setattr(loader_throughput.time, "process_time", lambda: clock[0])
    sampler = PendingSampler(TrainSampler(40, 8, seed=1))
    loader = TimedDataLoader(SkipBadSamples(Samples(clock), False), sampler=sampler, batch_size=None)
    assert time_loading(loader) == expected
    assert not sampler.pending

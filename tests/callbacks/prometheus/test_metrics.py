"""Tests the names and values of a rank's Prometheus metrics."""

import logging
import math
import re
import time

import pytest
import torch

from callbacks.prometheus.metrics import COUNTERS, GAUGES, PREFIX, metric_name
from engine.telemetry.log_events import EVENTS, event
from tests.support.outputs.metrics_endpoint import a_run, get, parsed

log = logging.getLogger("lockstep")


@pytest.mark.parametrize(
    "logged_name, name",
    [
        ("train/loss", "lockstep_train_loss"),
        ("val/hr@10", "lockstep_val_hr_at_10"),
        ("train/memory_gib", "lockstep_train_memory_gib"),
        ("train/gradient_norm/über-all", "lockstep_train_gradient_norm__ber_all"),
    ],
)
def test_logged_names_become_metric_names(logged_name, name):
    assert metric_name(logged_name) == name


def test_metrics_of_one_name_keep_apart(serve):
    run = a_run()
    run.logged.log_metrics(
        {"val/电压/right": 0.25, "val/温度/right": 0.5, "val/a-b": 1.0, "val/a_b": 2.0, "val/c": 3.0}
    )
    text = get(serve(run), "/metrics")[2]
    found = {name: sample.value for (name, _), sample in parsed(text).items() if name.startswith("lockstep_val_")}
    assert sorted(found.values()) == [0.25, 0.5, 1.0, 2.0, 3.0]
    assert found["lockstep_val_c"] == 3.0
    assert all(re.fullmatch(r"lockstep_val_\w+", name, re.ASCII) for name in found)
    assert "val/电压/right as last logged" in text


def test_every_metric_is_named_and_described(monkeypatch):
    """The metrics include those of a GPU, whose memory is mocked."""
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "a GPU")
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (30, 100))
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 40)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 60)
    run = a_run("cuda:1")
    run.begin_training()
    saved = event("checkpoint_saved", path="last.ckpt", seconds=0.5, bytes=1000)
    run.events.handle(logging.LogRecord("lockstep", logging.INFO, "", 0, "saved", (), None))
    run.events.handle(log.makeRecord("lockstep", logging.INFO, "", 0, "saved", (), None, extra=saved))
    families = {family.name: family for family in run.collect()}
    assert set(families) == {PREFIX + name.removesuffix("_total") for name in ("run", *GAUGES, *COUNTERS)}
    assert all(family.documentation for family in families.values())
    values = {family.name: family.samples[0].value for family in families.values()}
    assert values["lockstep_gpu_memory_used_bytes"] == 70
    assert values["lockstep_gpu_memory_size_bytes"] == 100
    assert (values["lockstep_gpu_memory_allocated_bytes"], values["lockstep_gpu_memory_reserved_bytes"]) == (40, 60)
    assert (values["lockstep_checkpoint_size_bytes"], values["lockstep_checkpoint_save_seconds"]) == (1000, 0.5)
    assert abs(values["lockstep_checkpoint_timestamp_seconds"] - time.time()) < 60
    assert values["lockstep_planned_steps"] == 40
    assert values["lockstep_data_wait_seconds"] == 1.5
    for family in families.values():
        for sample in family.samples:
            assert sample.labels["run"] == "a", family.name
            assert sample.labels["rank"] == "1", family.name
    events = {sample.labels["event"]: sample.value for sample in families["lockstep_events"].samples}
    assert events == dict.fromkeys(EVENTS, 0) | {"checkpoint_saved": 1}


def test_a_logged_metric_never_replaces_one_of_the_process(serve):
    run = a_run()
    run.begin_training()
    run.logged.log_metrics({"step": 1000.0, "run_info": 5.0, "epoch": 3.0, "train/loss": math.nan, "val/a": math.inf})
    samples = parsed(get(serve(run), "/metrics")[2])
    assert samples["lockstep_step", None].value == 7
    assert samples["lockstep_epoch", None].value == 2
    assert samples["lockstep_run_info", None].value == 1
    assert math.isnan(samples["lockstep_train_loss", None].value)
    assert samples["lockstep_val_a", None].value == math.inf


def test_other_metrics_stay_after_a_cuda_error(monkeypatch, serve):
    def broken(device):
        raise torch.AcceleratorError("CUDA error: device-side assert triggered", 710)

    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "a GPU")
    monkeypatch.setattr(torch.cuda, "mem_get_info", broken)
    status, _, text = get(serve(a_run("cuda:0")), "/metrics")
    assert status == 200
    assert "lockstep_events_total" in text
    assert "lockstep_gpu_memory" not in text


def test_steps_are_those_of_a_training(serve):
    """An evaluation, and a training that has not begun, has no steps: a dashboard would show a new training."""
    run = a_run()
    of_a_training = {"step", "epoch", "planned_steps", "time_left_seconds", "training_start_timestamp_seconds"}
    run.trainer.global_step = 20  # of the checkpoint
    port = serve(run)
    samples = parsed(get(port, "/metrics")[2])
    assert not {PREFIX + name for name in of_a_training} & {name for name, _ in samples}
    assert samples["lockstep_world_size", None].value == 2
    assert samples["lockstep_steps_total", None].value == 0
    run.begin_training()
    samples = parsed(get(port, "/metrics")[2])
    assert (samples["lockstep_step", None].value, samples["lockstep_steps_total", None].value) == (20, 0)
    assert samples["lockstep_time_left_seconds", None].value == math.inf
    run.trainer.global_step = 30
    samples = parsed(get(port, "/metrics")[2])
    assert (samples["lockstep_step", None].value, samples["lockstep_steps_total", None].value) == (30, 10)
    assert 0 < samples["lockstep_time_left_seconds", None].value < 60  # as long again as the last lines took
    run.trainer.global_step = 40
    assert parsed(get(port, "/metrics")[2])["lockstep_time_left_seconds", None].value == 0


def test_the_number_of_planned_steps_may_be_unknown():
    run = a_run()
    run.trainer.estimated_stepping_batches = -1
    run.begin_training()
    assert not {"lockstep_planned_steps", "lockstep_time_left_seconds"} & {family.name for family in run.collect()}

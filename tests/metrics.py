"""Metrics of a run that nobody does, and a client that asks for them."""

import urllib.error
import urllib.request
from types import SimpleNamespace

import torch
from prometheus_client.parser import text_string_to_metric_families

from callbacks.run_metrics import RunMetrics


def get(port, path, **headers):
    """(status, type, text)"""
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers["Content-Type"], error.read().decode()


def parsed(text):
    """{(name, event or phase): value}, and the labels of each."""
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    detail = [sample.labels.get("event", sample.labels.get("phase")) for sample in samples]
    return {(sample.name, which): sample for sample, which in zip(samples, detail, strict=True)}


def a_watch(phase="training", still=0.0, patience=300.0):
    return SimpleNamespace(phase=phase, still=still, patience=patience, step=7)


def a_run(device="cpu"):
    """The metrics of a process of a training that nobody does."""
    trainer = SimpleNamespace(
        default_root_dir="runs/a", global_rank=1, world_size=2, precision="bf16-mixed", global_step=7, current_epoch=2,
        strategy=SimpleNamespace(root_device=torch.device(device)), state=SimpleNamespace(fn=None),
        train_dataloader=SimpleNamespace(waited=1.5), estimated_stepping_batches=40,
    )  # fmt: skip
    return RunMetrics(trainer, a_watch(), lambda: 600.0)

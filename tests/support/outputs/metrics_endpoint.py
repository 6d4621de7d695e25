"""Metrics of a fake run, and an HTTP client for them."""

import urllib.error
import urllib.request
from types import SimpleNamespace
from typing import Any

import torch
from prometheus_client.parser import text_string_to_metric_families

from callbacks.prometheus.metrics import RunMetrics


def get(port: int, path: str, **headers: str) -> tuple[int, str, str]:
    """Return (status, content type, text) of a response."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers["Content-Type"], error.read().decode()


def parsed(text: str) -> dict[tuple[str, str | None], Any]:
    """Return {(name, event or phase): sample}."""
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    detail = [sample.labels.get("event", sample.labels.get("phase")) for sample in samples]
    return {(sample.name, which): sample for sample, which in zip(samples, detail, strict=True)}


def a_watch(phase: str = "training", still: float = 0.0, patience: float = 300.0) -> Any:
    """Return the monitor of a fake process: the phase, its seconds without progress, and their limit."""
    return SimpleNamespace(phase=phase, idle=still, max_idle=patience, step=7)


def a_run(device: str = "cpu") -> RunMetrics:
    """Return the metrics of rank 1 of a fake training."""
    trainer: Any = SimpleNamespace(
        default_root_dir="runs/a",
        global_rank=1,
        world_size=2,
        precision="bf16-mixed",
        global_step=7,
        current_epoch=2,
        strategy=SimpleNamespace(root_device=torch.device(device)),
        state=SimpleNamespace(fn=None),
        train_dataloader=SimpleNamespace(waited=1.5),
        estimated_stepping_batches=40,
    )
    return RunMetrics(trainer, a_watch(), lambda: 600.0)

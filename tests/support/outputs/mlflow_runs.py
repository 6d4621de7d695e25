"""Reads metrics from MLflow's database, and from metrics.jsonl for comparison."""

import math
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run, ViewType

from tests.support.outputs.jsonl import read_jsonl


def mlflow_runs(folder: Path, experiment: str) -> tuple[MlflowClient, list[Run]]:
    """Return a client, and all runs of an experiment in the folder's mlflow.db."""
    client = MlflowClient(f"sqlite:///{folder}/mlflow.db")
    found = client.get_experiment_by_name(experiment)
    assert found is not None, f"no experiment {experiment}"
    return client, list(client.search_runs([found.experiment_id], run_view_type=ViewType.ALL))


def mlflow_metrics(client: MlflowClient, run: Run) -> dict[tuple[str, int], float]:
    """Return {(metric, step): value}. Of a step that was repeated after a restart, the latest value counts."""
    history = [metric for key in run.data.metrics for metric in client.get_metric_history(run.info.run_id, key)]
    return {(metric.key, metric.step): metric.value for metric in sorted(history, key=lambda metric: metric.timestamp)}


def expected_metrics(run_folder: Path) -> dict[tuple[str, int], Any]:
    """Return {(metric, step): value} of metrics.jsonl by MLflow's names."""
    lines = read_jsonl(run_folder / "metrics.jsonl")
    return {
        (key.replace("@", "_at_"), line["step"]): pytest.approx(math.nan if value is None else value, nan_ok=True)
        for line in lines
        for key, value in line.items()
        if key not in ("step", "time", "run", "rank", "process", "altered")
    }

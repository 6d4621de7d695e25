"""Reads what MLflow has in runs/mlflow.db, beside what metrics.jsonl has."""

import json
import math
from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run, ViewType


def mlflow_runs(folder: Path, experiment: str) -> tuple[MlflowClient, list[Run]]:
    """All runs of an experiment in the folder's mlflow.db, and the client that can say more of them."""
    client = MlflowClient(f"sqlite:///{folder}/mlflow.db")
    place = client.get_experiment_by_name(experiment).experiment_id
    return client, list(client.search_runs([place], run_view_type=ViewType.ALL))


def mlflow_figures(client: MlflowClient, run: Run) -> dict[tuple[str, int], float]:
    """{(metric, step): value}; a step that was taken again after a restart has several, of which the newest counts."""
    history = [figure for key in run.data.metrics for figure in client.get_metric_history(run.info.run_id, key)]
    return {(figure.key, figure.step): figure.value for figure in sorted(history, key=lambda one: one.timestamp)}


def figures_expected(run_folder: Path) -> dict[tuple[str, int], float]:
    """{(metric, step): value} as metrics.jsonl has them, by MLflow's names."""
    lines = [json.loads(line) for line in (run_folder / "metrics.jsonl").read_text().splitlines()]
    return {
        (key.replace("@", "_at_"), line["step"]): pytest.approx(math.nan if value is None else value, nan_ok=True)
        for line in lines
        for key, value in line.items()
        if key not in ("step", "time", "run", "process", "altered")
    }

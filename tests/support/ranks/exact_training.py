"""Trainings of a tiny model that are compared to the bit, and the gradients that they record."""

from typing import Any

import torch

from tests.conftest import TINY, Run
from tests.support.families.tiny_linear import TINY_FAMILY
from tests.support.outputs.jsonl import read_jsonl
from tests.support.outputs.metric_series import assert_same_series
from tests.support.outputs.sample_log import read, sample_log

# An epoch has 13 steps, so the second epoch is cut short.
EXACT = [*TINY, "--model.init_args.dropout", "0.2", "--trainer.max_steps", "20", "--trainer.max_epochs", "-1"]
# 50 samples in batches of 8: the last global batch of an epoch has 2 samples.
DATA = ["--data.init_args.length", "50", "--data.init_args.batch_size", "8"]
SCHEDULE = {"schedule": "exponential", "decay_steps": 4, "warmup_steps": 3, "learning_rate": 0.01}
MODEL = [part for key, value in SCHEDULE.items() for part in (f"--model.init_args.{key}", str(value))]
OPTIONS = [*TINY_FAMILY, *DATA, *MODEL, "--trainer.max_steps", "20"]


def micro(size: int) -> list[str]:
    return ["--data.init_args.micro_batch_size", str(size)]


def by_rank(run: Run, folder: str) -> list[list[dict[str, Any]]]:
    """The records that each rank wrote."""
    paths = sorted((run.folder / folder).glob("*.jsonl"))
    return [read_jsonl(path) for path in paths]


def gradients(run: Run, folder: str = "gradients") -> torch.Tensor:
    """[steps, parameters], equal on all ranks; of an accumulated step the last record counts."""
    records = read(run.folder, folder)
    steps = {record["step"]: record["gradient"] for record in records}
    last = [{record["step"]: record["gradient"] for record in rank} for rank in by_rank(run, folder)]
    assert all(rank == steps for rank in last), "ranks differ"
    return torch.tensor([steps[step] for step in sorted(steps)])


def same_training(first: Run, second: Run) -> None:
    for metric in ("train/loss", "val/loss"):
        assert_same_series(first, second, [metric])
    assert first.series("train/learning_rate") == second.series("train/learning_rate"), (
        "schedules count optimizer steps"
    )
    torch.testing.assert_close(gradients(first)[:7], gradients(second)[:7], rtol=0, atol=1e-6)  # one epoch
    assert sample_log(first.folder) == sample_log(second.folder)

"""Tests the records of metrics.jsonl."""

import json
from datetime import datetime, timezone

import pytest

from callbacks.logging.jsonl_logger import JsonlLogger
from tests.support.outputs.jsonl import read_jsonl


@pytest.fixture
def metrics(tmp_path):
    progress = [1, 0]
    file = JsonlLogger(tmp_path / "metrics.jsonl", lambda: tuple(progress))
    yield file, progress
    file.close()


def test_a_record_names_step_epoch_and_time(metrics):
    file, progress = metrics
    before = datetime.now(timezone.utc).replace(microsecond=0)
    file.log_metrics({"train/loss": 0.5, "epoch": 7}, step=99)  # Lightning's own numbers count micro-batches
    progress[:] = [2, 1]
    file.log_metrics({"val/ndcg@10": 0.25})
    first, second = read_jsonl(file.path)
    assert list(first) == ["time", "run", "rank", "process", "step", "epoch", "train/loss"]
    assert (first["run"], first["rank"], first["process"]) == (file.path.parent.name, 0, 0)
    assert (first["step"], first["epoch"], first["train/loss"]) == (1, 0, 0.5)
    assert (second["step"], second["epoch"], second["val/ndcg@10"]) == (2, 1, 0.25)
    assert before <= datetime.fromisoformat(first["time"]) <= datetime.now(timezone.utc)


def test_a_value_that_is_not_finite_is_null(metrics):
    """JavaScript and jq refuse NaN."""
    file, _ = metrics
    file.log_metrics({"train/loss": float("nan"), "train/gradient_norm": float("inf"), "train/speed": 1.5})
    (record,) = [json.loads(line, parse_constant=pytest.fail) for line in file.path.read_text().splitlines()]
    assert (record["train/loss"], record["train/gradient_norm"], record["train/speed"]) == (None, None, 1.5)
    file.drop_after(1)
    assert len(read_jsonl(file.path)) == 1


def test_records_after_a_checkpoint_are_dropped(metrics):
    file, progress = metrics
    for step in range(1, 6):
        progress[:] = [step, 0]
        file.log_metrics({"train/loss": float(step)})
    with file.path.open("a") as torn:
        torn.write('{"step": 2, "ep')  # the last write of a killed process
    file.drop_after(3)
    assert [record["step"] for record in read_jsonl(file.path)] == [1, 2, 3]
    progress[:] = [4, 0]
    file.log_metrics({"train/loss": -4.0})
    assert [record["train/loss"] for record in read_jsonl(file.path)] == [1, 2, 3, -4]


@pytest.mark.parametrize(
    "corrupt", [b"\0" * 40, b'{"step": 1, "run": "\xff"}', b"[1]", b'"step"', b'{"step": null}', b"[" * 100_000]
)
def test_lines_that_are_no_records_are_dropped(metrics, corrupt):
    """A power failure or a failing disk may leave anything."""
    file, _ = metrics
    file.log_metrics({"train/loss": 0.5})
    with file.path.open("ab") as output:
        output.write(corrupt + b"\n")
    file.drop_after(1)
    assert [record["step"] for record in read_jsonl(file.path)] == [1]
    assert file.last_training_step == 1

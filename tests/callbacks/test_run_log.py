"""train.log, metrics.jsonl and environment.json."""

import json
import logging
from datetime import datetime, timezone

import pytest

from callbacks.run_log import LogFile, MetricsFile
from tests.conftest import TINY, Run
from tests.distributed.faults import fault


@pytest.fixture
def metrics(tmp_path):
    progress = [1, 0]
    file = MetricsFile(tmp_path / "metrics.jsonl", lambda: tuple(progress))
    yield file, progress
    file.close()


def records(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_record_names_step_epoch_and_time(metrics):
    file, progress = metrics
    before = datetime.now(timezone.utc).replace(microsecond=0)
    file.log_metrics({"train/loss": 0.5, "epoch": 7}, step=99)  # Lightning's own numbers count micro-batches
    progress[:] = [2, 1]
    file.log_metrics({"val/ndcg@10": 0.25})
    first, second = records(file.path)
    assert list(first) == ["time", "run", "process", "step", "epoch", "train/loss"]
    assert (first["run"], first["process"]) == (file.path.parent.name, 0)
    assert (first["step"], first["epoch"], first["train/loss"]) == (1, 0, 0.5)
    assert (second["step"], second["epoch"], second["val/ndcg@10"]) == (2, 1, 0.25)
    assert before <= datetime.fromisoformat(first["time"]) <= datetime.now(timezone.utc)


def test_a_figure_that_is_not_finite_is_null(metrics):
    """JavaScript and jq refuse NaN."""
    file, _ = metrics
    file.log_metrics({"train/loss": float("nan"), "train/gradient_norm": float("inf"), "train/speed": 1.5})
    (record,) = [json.loads(line, parse_constant=pytest.fail) for line in file.path.read_text().splitlines()]
    assert (record["train/loss"], record["train/gradient_norm"], record["train/speed"]) == (None, None, 1.5)
    file.forget_after(1)
    assert len(records(file.path)) == 1


def test_what_came_after_a_checkpoint_is_forgotten(metrics):
    file, progress = metrics
    for step in range(1, 6):
        progress[:] = [step, 0]
        file.log_metrics({"train/loss": float(step)})
    with file.path.open("a") as torn:
        torn.write('{"step": 2, "ep')  # the last write of a killed process
    file.forget_after(3)
    assert [record["step"] for record in records(file.path)] == [1, 2, 3]
    progress[:] = [4, 0]
    file.log_metrics({"train/loss": -4.0})
    assert [record["train/loss"] for record in records(file.path)] == [1, 2, 3, -4]


def test_the_record_of_a_run(trained):
    run = Run(trained / "runs/recommender-quickstart-job1")
    lines = records(run.folder / "metrics.jsonl")
    assert all({"time", "run", "process", "step", "epoch"} < record.keys() for record in lines)
    assert [record["step"] for record in lines] == sorted(record["step"] for record in lines)
    assert sorted(run.series("train/loss")) == list(range(1, 27))
    assert sorted(run.series("val/ndcg@10")) == [13, 26]
    assert {record["epoch"] for record in lines if record["step"] in (1, 13)} == {0}
    assert {record["epoch"] for record in lines if record["step"] == 14} == {1}
    for metric in ("train/samples_per_second", "train/data_wait", "train/real_positions"):
        assert len(run.series(metric)) == 26, metric
    assert len(run.series("val/baseline/popularity/hr@10")) == 1, "baselines do not change: once a run"

    text = (run.folder / "train.log").read_text()
    for words in ("global batch 16 = 1 process x 16 samples x 1 accumulation step", "precision in force: 32-true",
                  "train/loss", "validation, best checkpoint: this model", "val/ndcg@10"):  # fmt: skip
        assert words in text
    facts = json.loads((run.folder / "environment.json").read_text())
    assert (facts["processes"], facts["nodes"], facts["device"], facts["precision"]) == (1, 1, "cpu", "32-true")
    assert facts["packages"]["torch"] and facts["packages"]["lightning"]
    assert list(run.folder.glob("events.out.tfevents.*")), "TensorBoard"


def test_an_evaluation_adds_to_the_record(lockstep, done):
    before = (done.folder / "metrics.jsonl").read_text()
    lockstep("validate", *TINY, name=done.folder.name)
    after = (done.folder / "metrics.jsonl").read_text()
    assert after.startswith(before)
    (record,) = map(json.loads, after[len(before) :].splitlines())
    best = done.series("val/ndcg@10")
    assert record["val/ndcg@10"] == max(best.values())
    assert record["step"] == max(best, key=best.__getitem__), "the step of the checkpoint that was evaluated"


def test_a_run_that_fails_says_why_and_closes_its_files(lockstep, tmp_path):
    with pytest.raises(RuntimeError, match="injected"):
        lockstep("fit", *TINY, *fault("RaiseAt", step=2, process=0), name="a")
    log = logging.getLogger("lockstep")
    assert not [handler for handler in log.handlers if isinstance(handler, LogFile)]
    text = (tmp_path / "runs/a/train.log").read_text()
    assert "Traceback" in text and "process 0 failed at step 2 (training): RuntimeError: injected" in text

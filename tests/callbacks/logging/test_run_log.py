"""Tests train.log, metrics.jsonl and environment.json of a run."""

import json
import logging

import pytest

from callbacks.logging.file_handlers import LogFile
from tests.conftest import TINY, Run
from tests.support.families.tiny_linear import TINY_FAMILY
from tests.support.faults.step_faults import fault
from tests.support.outputs.jsonl import read_jsonl


def test_a_finished_run_has_its_metrics_by_step_and_epoch(trained):
    run = Run(trained / "runs/recommender-quickstart-job1")
    lines = run.records
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
    for words in (
        "global batch 16 = 1 rank x 16 samples x 1 accumulation step",
        "precision 32-true",
        "train/loss",
        "validation, best checkpoint: this model",
        "val/ndcg@10",
    ):
        assert words in text
    facts = json.loads((run.folder / "environment.json").read_text())
    assert (facts["processes"], facts["nodes"], facts["device"], facts["precision"]) == (1, 1, "cpu", "32-true")
    assert facts["packages"]["torch"]
    assert facts["packages"]["lightning"]
    assert list(run.folder.glob("events.out.tfevents.*")), "TensorBoard"


def test_an_evaluation_appends_to_metrics(lockstep, done):
    before = (done.folder / "metrics.jsonl").read_text()
    lockstep("validate", *TINY, name=done.folder.name)
    after = (done.folder / "metrics.jsonl").read_text()
    assert after.startswith(before)
    (record,) = map(json.loads, after[len(before) :].splitlines())
    best = done.series("val/ndcg@10")
    assert record["val/ndcg@10"] == max(best.values())
    assert record["step"] == max(best, key=best.__getitem__), "the step of the checkpoint that was evaluated"


def test_a_finished_run_logs_the_limit_that_it_has_reached(lockstep, done, messages):
    name = done.folder.name
    resume = ("fit", "--ckpt_path", "last")
    lockstep(*resume, name=name)
    assert "nothing left to train: trainer.max_epochs 2 is reached; raise it to train on" in messages
    messages.clear()
    lockstep(*resume, "--trainer.max_steps", "26", "--trainer.max_epochs", "9", name=name)
    assert "nothing left to train: trainer.max_steps 26 is reached; raise it to train on" in messages
    messages.clear()
    lockstep(*resume, "--trainer.max_epochs", "3", name=name)
    assert not [line for line in messages if "nothing left" in line]
    assert max(done.series("train/loss")) == 39


@pytest.mark.parametrize(("interval", "logged"), [(14, [14]), (16, [])])
def test_metrics_that_are_never_logged_are_named(lockstep, messages, interval, logged):
    """An epoch has 13 steps, and Lightning counts the interval over epochs: its own warning is dropped."""
    steps = ["--trainer.max_steps", "15", "--trainer.limit_val_batches", "0"]
    run = lockstep("fit", *TINY, *steps, "--trainer.log_every_n_steps", str(interval), name="a")
    expected = (
        "trainer.log_every_n_steps 16 is more than the 15 steps of this training: train/loss is never logged; "
        "set it to 15 or less"
    )
    assert list(run.series("train/loss")) == logged
    assert (expected in messages) == (not logged)


def test_a_stream_without_a_planned_end_gets_no_warning_of_its_interval(lockstep, messages):
    """Lightning plans -1 steps for it, which was compared with the interval."""
    options = ["--data.init_args.stream", "true", "--data.init_args.batch_size", "4", "--data.init_args.length", "16"]
    options += ["--trainer.max_epochs", "1", "--trainer.log_every_n_steps", "2"]
    run = lockstep("fit", *TINY_FAMILY, *options, name="a")
    assert list(run.series("train/loss")) == [2, 4]
    assert not [line for line in messages if "log_every_n_steps" in line]


def test_a_failed_run_logs_the_reason_and_closes_its_files(lockstep, tmp_path):
    with pytest.raises(RuntimeError, match="injected"):
        lockstep("fit", *TINY, *fault("RaiseAt", step=2, process=0), name="a")
    log = logging.getLogger("lockstep")
    assert not [handler for handler in log.handlers if isinstance(handler, LogFile)]
    text = (tmp_path / "runs/a/train.log").read_text()
    assert "Traceback" in text
    assert "rank 0 failed at step 2 (training): RuntimeError: injected" in text


def test_metrics_of_a_step_are_logged_though_the_run_was_killed_after_its_checkpoint(lockstep, tmp_path):
    """A rank may wait for another, and be ended, between the writes of a checkpoint and of the step's metrics."""
    options = [*TINY, "--last_checkpoint.every_n_steps", "6", "--trainer.limit_val_batches", "0"]
    lockstep("fit", *options, "--trainer.max_steps", "6", name="a")
    path = tmp_path / "runs/a/metrics.jsonl"
    *earlier, lost = read_jsonl(path)
    assert lost["step"] == 6
    assert "train/loss" in lost
    path.write_text("".join(json.dumps(record) + "\n" for record in earlier))
    lockstep("fit", *TINY, "--trainer.max_steps", "8", "--ckpt_path", "last", name="a")
    lines = read_jsonl(path)
    assert [record["step"] for record in lines if "train/loss" in record] == [1, 2, 3, 4, 5, 6, 7, 8]
    (restored,) = (record for record in lines if record["step"] == 6 and "train/loss" in record)
    assert {**restored, "time": lost["time"]} == lost


def test_metrics_that_were_logged_are_not_logged_again(lockstep, tmp_path):
    lockstep("fit", *TINY, "--trainer.max_steps", "6", name="a")
    lockstep("fit", *TINY, "--trainer.max_steps", "8", "--ckpt_path", "last", name="a")
    steps = [record["step"] for record in read_jsonl(tmp_path / "runs/a/metrics.jsonl") if "train/loss" in record]
    assert steps == [1, 2, 3, 4, 5, 6, 7, 8]

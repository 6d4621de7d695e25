"""A run that version 0.1.0 trained for 6 steps can be tested, resumed and reported.

`version_0_1_0/` is the run directory that version 0.1.0 has written. `uninterrupted.jsonl` has its metrics of the same
training over 12 steps without a stop.
"""

import shutil
from pathlib import Path

import pytest

from commands.report.main import main as report
from tests.support.outputs.jsonl import read_jsonl

RUN = Path(__file__).with_name("version_0_1_0")


@pytest.fixture
def old_run(tmp_path, lockstep):
    """The run's directory, where the command line finds it."""
    folder = tmp_path / "runs/old"
    shutil.copytree(RUN, folder, ignore=shutil.ignore_patterns("uninterrupted.jsonl"))
    return folder


def test_a_checkpoint_evaluates_alike(lockstep, old_run):
    before = read_jsonl(old_run / "metrics.jsonl")[-1]
    lockstep("test", "--ckpt_path", "last", name="old")
    after = read_jsonl(old_run / "metrics.jsonl")[-1]
    metrics = [name for name in before if name.startswith("test/")]
    assert len(metrics) > 10
    assert after["step"] == 6
    assert {name: after[name] for name in metrics} == pytest.approx({name: before[name] for name in metrics}, abs=1e-6)


def test_an_interrupted_run_resumes_exactly(lockstep, old_run):
    """Only dropout differs: that version drew its masks by rank, and this one by sample."""
    further = ["--config", str(old_run / "config.yaml"), "--ckpt_path", "last", "--trainer.max_steps", "12"]
    further += ["--trainer.check_val_every_n_epoch", "null"]  # which that version did not write into config.yaml
    run = lockstep("fit", *further, name="old")
    for metric, difference in {"train/loss": 0.005, "train/gradient_norm": 0.15, "val/ndcg@10": 0.05}.items():
        expected = {line["step"]: line[metric] for line in read_jsonl(RUN / "uninterrupted.jsonl") if metric in line}
        assert len(expected) >= 4
        assert run.series(metric) == pytest.approx(expected, rel=difference), metric


def test_a_report_shows_a_run_of_version_0_1_0(old_run, tmp_path):
    assert report(["old", "--output", str(tmp_path / "page.html")]) in (0, None)
    assert "ndcg@10" in (tmp_path / "page.html").read_text()

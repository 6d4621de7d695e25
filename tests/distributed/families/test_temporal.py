"""Temporal family: answers of different lengths on different ranks, padded or packed, train the same."""

import json

import pytest

from tests.support.families.tiny_series import write_series_folder
from tests.support.families.tiny_temporal import TINY_TEMPORAL
from tests.support.outputs.metric_series import assert_same_series

OPTIONS = [*TINY_TEMPORAL, "--trainer.max_epochs", "3"]  # 12 steps, validations after 8


def test_one_and_two_processes_train_the_same(lockstep, team):
    alone = lockstep("fit", *OPTIONS, name="alone")
    pair = team("fit", *OPTIONS, name="pair", processes=2).succeeded(120)
    assert sorted(alone.series("train/loss")) == list(range(1, 13))
    metrics = ("train/loss", "val/loss", "val/baseline/blind/loss", "val/exact", "val/baseline/rules/exact")
    assert_same_series(alone, pair, metrics)


@pytest.mark.slow
def test_an_evaluation_in_which_a_process_has_no_sample(lockstep, team):
    """Two questions in batches of four: the second process has a filler alone, and takes part all the same."""
    lockstep("fit", *OPTIONS, "--trainer.max_epochs", "1", "--trainer.check_val_every_n_epoch", "1", name="model")
    few = [*OPTIONS, "--data.init_args.test_size", "2"]
    lockstep("test", *few, name="model")
    pair = team("test", *few, name="model", processes=2).succeeded(120)
    alone, both = (record for record in pair.records if "test/loss" in record)
    assert {name for name in alone if name.startswith("test/")} == {name for name in both if name.startswith("test/")}
    for name in ("test/loss", "test/baseline/blind/loss", "test/exact", "test/baseline/rules/exact"):
        assert abs(alone[name] - both[name]) < 1e-6, name
    report = json.loads((pair.folder / "prediction_report.json").read_text(encoding="utf-8"))
    assert [record["sample"] for record in report["records"]] == [0, 1]


@pytest.mark.slow
def test_two_processes_answer_in_the_order_of_the_questions(lockstep, team, tmp_path):
    lockstep("fit", *OPTIONS, "--trainer.max_epochs", "1", "--trainer.check_val_every_n_epoch", "1", name="model")
    questions = [{"question": f"sm at step {n}?", "values": {"gpu_sm": [50.0] * (40 - 4 * n)}} for n in range(9)]
    (tmp_path / "questions.jsonl").write_text("\n".join(map(json.dumps, questions)))
    pair = team(
        "predict", *OPTIONS, "--data.init_args.questions", "questions.jsonl", name="model", processes=2
    ).succeeded(120)
    answered = pair.predictions()
    assert [question["question"] for question in answered] == [question["question"] for question in questions]


@pytest.mark.slow
def test_one_and_two_processes_answer_the_users_series_the_same(lockstep, team, tmp_path):
    """Options, numbers and texts in batches of which the second process has other shares; the same metrics."""
    options = [*write_series_folder(tmp_path / "series", train=15), "--trainer.max_steps", "1"]
    lockstep("fit", *options, name="model")
    lockstep("test", *options, name="model")
    pair = team("test", *options, name="model", processes=2).succeeded(120)
    alone, both = pair.test_metrics
    assert alone.keys() == both.keys()
    assert "test/baseline/chance/accuracy" in alone
    for name, value in alone.items():
        assert abs(value - both[name]) < 1e-4 * max(1, abs(value)), name

"""Runs the commands after a training: test, predict, and training from a cache."""

import json

import pytest

from commands.cli.main import main
from commands.report.comparison.saved_answers import read_answers
from tests.support.families.tiny_temporal import TINY_TEMPORAL

SHORT = [*TINY_TEMPORAL, "--trainer.max_steps", "4", "--trainer.check_val_every_n_epoch", "1"]


@pytest.mark.slow
def test_test_reports_what_it_measures(lockstep):
    lockstep("fit", *SHORT, name="a")
    run = lockstep("test", *TINY_TEMPORAL, name="a")
    report = json.loads((run.folder / "prediction_report.json").read_text(encoding="utf-8"))
    assert (run.folder / "prediction_report.html").stat().st_size > 10_000
    assert [record["sample"] for record in report["records"]] == list(range(10))
    measured = {key: value for line in run.records for key, value in line.items()}
    compared = 0
    for metric in report["metrics"]:
        name = metric["name"].replace("\N{NO-BREAK SPACE}%", " percent").replace(" ", "_")
        name = name if metric["task"] == "all" else f"{metric['task']}/{name}"
        for system, prefix in (("model", ""), ("blind", "baseline/blind/"), ("rules", "baseline/rules/")):
            assert measured[f"test/{prefix}{name}"] == pytest.approx(metric[system], abs=1e-6), name
            compared += 1
        assert metric["rules"] == 1
    assert compared > 30
    answers = read_answers(run.folder)  # refuses answers whose points are not the metric
    assert answers.metric in measured
    assert len(answers.answers) <= 10
    assert all(answer.expected for answer in answers.answers)
    reported = {
        key: value for key, value in measured.items() if key.startswith("test/") and key.endswith("/perplexity")
    }
    own = [value for key, value in reported.items() if key.count("/") == 2]
    assert 2 <= len(own) <= 4, "of each task, and blind"
    assert len(reported) == 2 * len(own) + 2, "of each task, and blind"
    assert min(own) < measured["test/perplexity"] < max(own)


@pytest.mark.slow
def test_a_limited_test_is_not_of_the_shortest_timelines(lockstep):
    lockstep("fit", *SHORT, name="a")
    # A fraction: 1 may be read as 1.0, all, where something has named the types in another order before.
    run = lockstep("test", *TINY_TEMPORAL, "--trainer.limit_test_batches", "0.4", name="a")
    report = json.loads((run.folder / "prediction_report.json").read_text(encoding="utf-8"))
    assert [record["sample"] for record in report["records"]] == [0, 1, 2, 3]


@pytest.mark.slow
def test_a_trained_run_is_tested_on_recorded_timelines(lockstep, tmp_path):
    lockstep("fit", *SHORT, name="a")
    rows = "".join(f"{100 * step},{(7 * step) % 16},{50 + step % 40}\n" for step in range(120))
    (tmp_path / "machine.csv").write_text("time_ms,cpu_cores,gpu_sm\n" + rows)
    run = lockstep("test", *TINY_TEMPORAL, "--data.init_args.timelines", "machine.csv", name="a")
    report = json.loads((run.folder / "prediction_report-machine.json").read_text(encoding="utf-8"))
    assert report["about"]["timelines"] == "machine.csv"
    assert {record["asked_channel"] for record in report["records"]} <= {"cpu_cores", "gpu_sm"}


def test_wrong_timelines_are_refused_before_the_training(lockstep):
    with pytest.raises(FileNotFoundError, match="absent.csv"):
        lockstep("fit", *SHORT, "--data.init_args.timelines", "absent.csv", name="a")


@pytest.mark.slow
def test_answers_come_in_the_order_of_the_questions(lockstep, tmp_path):
    lockstep("fit", *SHORT, name="a")
    steps = [40, 12, 30, 3, 25, 18, 45]
    questions = [{"question": "trend of sm?", "values": {"gpu_sm": [50.0] * count}} for count in steps]
    (tmp_path / "questions.jsonl").write_text("\n".join(map(json.dumps, questions)) + "\n")
    run = lockstep("predict", *TINY_TEMPORAL, "--data.init_args.questions", "questions.jsonl", name="a")
    answered = run.predictions()
    assert [{key: row[key] for key in ("question", "values")} for row in answered] == questions
    assert all(isinstance(row["answer"], str) for row in answered)


@pytest.mark.slow
def test_training_from_a_cache_is_the_same_training(lockstep):
    options = [*TINY_TEMPORAL, "--data.init_args.easy_epochs", "0", "--trainer.max_epochs", "2"]
    cached = ["--data.init_args.cached_epochs", "2"]
    main(["prepare", *options, *cached])
    made = lockstep("fit", *options, name="made").series("train/loss")
    assert lockstep("fit", *options, *cached, name="kept").series("train/loss") == made
    assert len(made) == 8
    with pytest.raises(ValueError, match="found 2 epochs of 64 samples for TRAIN, expected 3 of 64"):
        lockstep("fit", *options, *cached, "--trainer.max_epochs", "3", name="longer")
    with pytest.raises(ValueError, match="for VALIDATION, expected 1 of 11"):
        lockstep("fit", *options, *cached, "--data.init_args.validation_size", "11", name="wider")


@pytest.mark.parametrize(
    ("key", "value", "messages"),
    [
        ("data.init_args.packed_length", "0", "packed_length must be at least 1"),
        ("data.init_args.length_groups", "0", "length_groups must be at least 1"),
        ("data.init_args.easy_epochs", "-1", "easy_epochs must be at least 0, got -1"),
        ("data.init_args.cached_epochs", "-1", "cached_epochs must be at least 0, got -1"),
        ("model.init_args.max_new_tokens", "0", "max_new_tokens must be at least 1"),
        ("model.init_args.projector.kind", "pixel_shuffle", "pixel_shuffle, which takes the features of images"),
    ],
)
def test_settings_out_of_range_or_of_images_are_refused(lockstep, key, value, messages):
    with pytest.raises(ValueError, match=messages):
        lockstep("fit", *SHORT, f"--{key}", value, name="a")

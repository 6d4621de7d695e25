"""Tests the record of the training of a checkpoint: the metrics of its step alone."""

import json

import pytest

from commands.runs.provenance import training_of


@pytest.fixture
def run(tmp_path):
    lines = [
        {"step": 10, "altered": "", "val/accuracy": 0.5},
        {"step": 20, "altered": "", "val/accuracy": 0.6, "val/loss": 1.0},
        {"step": 20, "train/loss": 1.5},
        {"step": 30, "val/accuracy": 0.7},
        {"step": 20, "altered": "", "test/accuracy": 0.55, "test/loss": 2.0},
        {"step": 20, "altered": "", "test/accuracy": 0.56, "test/note": "text"},
        {"step": 20, "altered": "trainer.limit_test_batches", "test/accuracy": 0.9},
        {"step": 10, "altered": "data.init_args.ablate", "test/accuracy": 0.8},
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (tmp_path / "metrics.jsonl").write_text(text + '{"step": 20, "val/accur')
    (tmp_path / "config.yaml").write_text("model: {width: 1}")
    (tmp_path / "config-2.yaml").write_text("model: {width: 2}")
    (tmp_path / "environment.json").write_text('{"commit": "abc"}')
    return tmp_path


def test_metrics_are_those_of_the_step(run):
    training = training_of(run / "checkpoints" / "best.ckpt", {"global_step": 20, "epoch": 3})
    assert training.metrics == {"val/accuracy": 0.6, "val/loss": 1.0, "test/accuracy": 0.56}
    assert training.excluded == {}
    assert (training.step, training.epoch) == (20, 3)
    assert training.config == {"model": {"width": 2}}
    assert training.environment == {"commit": "abc"}


def test_metrics_with_changed_settings_are_excluded(run):
    training = training_of(run / "hpc_ckpt_1.ckpt", {"global_step": 10})
    assert training.metrics == {"val/accuracy": 0.5}
    assert training.excluded == {"test": "data.init_args.ablate"}
    old = training_of(run / "hpc_ckpt_1.ckpt", {"global_step": 30})
    assert old.metrics == {}
    assert old.excluded == {"val": "unknown: the record is of an older version"}


def test_a_checkpoint_without_a_run_is_reported(tmp_path, caplog):
    training = training_of(tmp_path / "other" / "best.ckpt", {"global_step": 7, "epoch": 1})
    assert (training.step, training.metrics, training.config, training.environment) == (7, {}, {}, {})
    assert "there is no run beside" in caplog.text


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("config-2.yaml", "- 1\n", r"config-2.yaml:1: the file is list, expected settings, KEY: VALUE"),
        ("config-2.yaml", "trainer: [1]\n", r"config-2.yaml:1: trainer is list, expected settings"),
        ("config-2.yaml", "a: 1\na: 2\n", r"config-2.yaml:2: the key a stands twice"),
        ("environment.json", "[]", r"environment.json: is not a record of the environment .*; delete it"),
        ("environment.json", '{"packages": [1]}', r"environment.json: is not a record .*`packages`"),
        ("environment.json", '{"commit": ', r"environment.json: is not a record"),
    ],
)
def test_a_corrupt_file_of_the_run_is_named(run, name, text, message):
    (run / name).write_text(text)
    with pytest.raises(ValueError, match=message):
        training_of(run / "checkpoints" / "best.ckpt", {"global_step": 20})


def test_lines_that_are_no_records_are_counted(run, caplog):
    lines = [
        b'["val/accuracy"]',
        b'{"step": 20, "altered": 1, "val/accuracy": 9}',
        b'{"val/\xff": 1}',
        b'{"step": 20, "altered": "", "val/accuracy": NaN}',
        b"[" * 100_000 + b'"val/',
    ]
    with (run / "metrics.jsonl").open("ab") as file:
        file.write(b"\n" + b"\n".join(lines) + b"\n")
    training = training_of(run / "checkpoints" / "best.ckpt", {"global_step": 20})
    assert training.metrics["val/accuracy"] == 0.6
    assert "metrics.jsonl: 6 lines are not records of metrics and are ignored" in caplog.text

"""What a checkpoint's run tells of it: the figures of its own step and no others."""

import json

import pytest

from commands.trained_run import training_of


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


def test_figures_are_those_of_the_step(run):
    training = training_of(run / "checkpoints" / "best.ckpt", {"global_step": 20, "epoch": 3})
    assert training.figures == {"val/accuracy": 0.6, "val/loss": 1.0, "test/accuracy": 0.56}
    assert training.left_out == {}
    assert (training.step, training.epoch) == (20, 3)
    assert training.config == {"model": {"width": 2}} and training.environment == {"commit": "abc"}


def test_figures_with_other_settings_are_none_of_the_checkpoint(run):
    training = training_of(run / "hpc_ckpt_1.ckpt", {"global_step": 10})
    assert training.figures == {"val/accuracy": 0.5} and training.left_out == {"test": "data.init_args.ablate"}
    old = training_of(run / "hpc_ckpt_1.ckpt", {"global_step": 30})
    assert old.figures == {} and old.left_out == {"val": "unknown: the record is of an older version"}


def test_a_checkpoint_alone_is_said_to_be_alone(tmp_path, caplog):
    training = training_of(tmp_path / "other" / "best.ckpt", {"global_step": 7, "epoch": 1})
    assert (training.step, training.figures, training.config, training.environment) == (7, {}, {}, {})
    assert "there is no run with its config and figures" in caplog.text

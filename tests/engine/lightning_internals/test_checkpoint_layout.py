"""Tests that the checkpoints of the installed Lightning have the keys that the project reads."""

import pytest
import torch

from engine.lightning_internals import checkpoint_layout as layout
from tests.engine.lightning_internals.tiny_training import INSTALLED, Model, loader, trainer


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    run = trainer(val_check_interval=2, num_sanity_val_steps=0)
    run.fit(Model(), loader(4), loader(1))
    path = tmp_path_factory.mktemp("layout") / "saved.ckpt"
    run.save_checkpoint(path)
    return torch.load(path, weights_only=True)


@pytest.mark.parametrize(
    "key",
    [
        "EPOCHS",
        "BATCHES",
        "OPTIMIZER_STEPS",
        "MANUAL_OPTIMIZER_STEPS",
        "SCHEDULER_STEPS",
        "FIT_LOOP_STATE",
        "EPOCH_LOOP_STATE",
        "VALIDATION_BATCHES",
        "VALIDATION_LOOP_STATE",
    ],
)
def test_a_checkpoint_has_the_keys_of_the_fit_loop(checkpoint, key):
    assert getattr(layout, key) in layout.fit_loop(checkpoint), INSTALLED


def test_the_keys_hold_the_progress(checkpoint):
    fit_loop = layout.fit_loop(checkpoint)
    assert fit_loop[layout.EPOCHS]["current"]["processed"] == 1, INSTALLED
    assert fit_loop[layout.BATCHES]["total"]["processed"] == 4, INSTALLED
    assert fit_loop[layout.VALIDATION_BATCHES]["total"]["processed"] == 2, INSTALLED
    assert fit_loop[layout.EPOCH_LOOP_STATE][layout.LOG_STEPS] == 4, INSTALLED


@pytest.mark.parametrize("loop", ["validate_loop", "test_loop", "predict_loop"])
def test_a_checkpoint_has_the_keys_of_evaluations(checkpoint, loop):
    state = checkpoint[layout.LOOPS][loop]
    assert {layout.EVALUATION_BATCHES, layout.EVALUATION_LOOP_STATE} <= state.keys(), INSTALLED


def test_a_checkpoint_of_weights_has_no_fit_loop():
    assert layout.fit_loop({"state_dict": {}}) == {}

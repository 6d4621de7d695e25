"""Steps without a finite gradient under a loss scaler: the guard skips those with a bad loss, the scaler the others."""

import math

import torch

from tests.conftest import TINY
from tests.support.device.options import on, quiet
from tests.support.faults.number_faults import number_fault

SCALE = 2.0**16  # at the start


def options(device):
    return [*TINY, *on(device, "16-mixed"), *quiet(7), "--trainer.limit_val_batches", "0"]


def test_a_bad_loss_is_skipped_and_an_overflow_left_to_the_scaler(device, workplace):
    nan, overflow = number_fault("NonFiniteLoss", steps="[2]"), number_fault("InfiniteGradientAt", step=4)
    run = workplace.run("fit", *options(device), *nan, *overflow, "--finite_guard.policy", "skip", name="skipped")
    losses = run.series("train/loss")
    assert [step for step in losses if not math.isfinite(losses[step])] == [3]
    assert run.series("train/skipped_steps")[7] == 1, "the guard has skipped step 3, the scaler step 5"
    assert losses[7] < losses[1]
    saved = torch.load(run.folder / "checkpoints/last.ckpt", weights_only=True, map_location="cpu")
    assert all(weight.isfinite().all() for weight in saved["state_dict"].values())
    scaler = saved.get("MixedPrecision") or saved["HalfOnCPU"]
    assert scaler["scale"] == SCALE / 4, "each of the two has halved it"
    updates = {float(state["step"]) for state in saved["optimizer_states"][0]["state"].values()}
    assert updates == {5.0}, "of 7 steps"


def test_a_bad_loss_stops_the_run_and_changes_no_weight(device, workplace):
    nan, saving = number_fault("NonFiniteLoss", steps="[2]"), ["--last_checkpoint.every_n_steps", "1"]
    run = workplace.run("fit", *options(device), *nan, *saving, name="stopped", codes=[1])
    assert "step 3" in run.output
    assert "its norm is nan" in run.output
    assert "No weight was changed" in run.output
    saved = torch.load(run.folder / "checkpoints/last.ckpt", weights_only=True, map_location="cpu")
    assert saved["global_step"] == 2
    assert all(weight.isfinite().all() for weight in saved["state_dict"].values())

"""Tests the guard on one rank; tests/distributed/faults/test_numeric_guards.py tests two ranks."""

import math

import pytest
import torch
from lightning.pytorch import Callback

from callbacks.guards.finite_guard import FiniteGuard
from engine.distributed.errors import CollectiveError
from tests.conftest import TINY
from tests.support.device.half_on_cpu import half_on_cpu
from tests.support.faults.number_faults import change_next_loss, number_fault

SIX_STEPS = [*TINY, "--trainer.max_steps", "6", "--model.init_args.dropout", "0"]
SKIP = ["--finite_guard.policy", "skip"]


class NormedBranch(Callback):
    """The model has a batch norm; its input is NaN after `nan_at` steps."""

    def __init__(self, nan_at: int = -1) -> None:
        self.nan_at = nan_at

    def setup(self, trainer, pl_module, stage):
        pl_module.normed = torch.nn.BatchNorm1d(2)

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        inputs = torch.tensor([[1.0, 2.0], [3.0, 5.0]]) * (math.nan if trainer.global_step == self.nan_at else 1)
        change_next_loss(pl_module, lambda total: total + pl_module.normed(inputs).sum())


def weights(run):
    return torch.load(run.folder / "checkpoints/last.ckpt", weights_only=True)["state_dict"]


def test_limits_below_one_are_refused():
    with pytest.raises(ValueError, match="finite_guard.max_skips must be at least 1, got 0"):
        FiniteGuard(max_skips=0)


def test_a_restart_does_not_allow_more_skips_and_rollbacks():
    """A diverged run that a launcher restarts would never end."""
    guard = FiniteGuard("rollback", max_skips=2, max_rollbacks=2)
    guard.skipped, guard.consecutive_skips, guard.rollbacks = 3, 2, 2
    restarted = FiniteGuard("rollback", max_skips=2, max_rollbacks=2)
    restarted.load_state_dict(guard.state_dict())
    with pytest.raises(CollectiveError, match="has rolled back 2 times already"):
        restarted._roll_back(None, None, None, "NaN")
    with pytest.raises(CollectiveError, match="The 2 steps before it were skipped"):
        restarted._skip("NaN")
    assert restarted.skipped == 3


@pytest.mark.parametrize("algorithm", ["norm", "value"])
def test_the_norm_that_is_logged_is_the_one_before_clipping(fit, algorithm):
    """Clipping by norm reuses the norm; the steps are equal to those of Lightning's own clipping."""
    options = [*SIX_STEPS, "--trainer.gradient_clip_algorithm", algorithm]
    clipped = fit(*options, "--trainer.gradient_clip_val", "0.01", name="clipped")
    free = fit(*options, "--trainer.gradient_clip_val", "0", name="free")
    norms = clipped.series("train/gradient_norm")
    assert sorted(norms) == [1, 2, 3, 4, 5, 6]
    assert norms[1] > 0.01
    assert norms[1] == free.series("train/gradient_norm")[1]
    assert clipped.series("train/loss")[6] != free.series("train/loss")[6]


def test_clipping_is_lightnings_to_the_bit(fit, monkeypatch):
    options = [*SIX_STEPS, "--trainer.gradient_clip_val", "0.05"]
    ours = fit(*options, name="ours")
    monkeypatch.delattr("engine.optimizer_module.OptimizerModule.configure_gradient_clipping")
    lightnings = fit(*options, name="lightnings")
    assert ours.series("train/loss") == lightnings.series("train/loss")
    assert all(torch.equal(weight, weights(lightnings)[name]) for name, weight in weights(ours).items())


def test_a_skipped_step_leaves_weights_and_optimizer_as_they_were(fit, messages):
    before = fit(*SIX_STEPS, "--trainer.max_steps", "5", name="before")
    run = fit(*SIX_STEPS, *SKIP, *number_fault("NonFiniteLoss", steps="[5]", value=".inf"), name="skipped")
    assert all(torch.equal(weight, weights(before)[name]) for name, weight in weights(run).items())
    first, second = (torch.load(r.folder / "checkpoints/last.ckpt", weights_only=True) for r in (before, run))
    assert (first["global_step"], second["global_step"]) == (5, 6)
    moments = first["optimizer_states"][0]["state"], second["optimizer_states"][0]["state"]
    assert all(torch.equal(moments[0][i]["exp_avg"], moments[1][i]["exp_avg"]) for i in moments[0])
    assert [line for line in messages if "This step is skipped (1 so far)" in line]


def test_statistics_of_batch_norms_are_put_back(fit):
    branch = [
        "--trainer.callbacks+=tests.callbacks.guards.test_finite_guard.NormedBranch",
        "--trainer.callbacks.nan_at",
        "3",
    ]
    run = fit(*SIX_STEPS, *SKIP, *branch)
    saved = weights(run)
    assert run.series("train/skipped_steps")[6] == 1
    assert saved["normed.running_mean"].isfinite().all()
    assert saved["normed.running_var"].isfinite().all()
    assert saved["normed.num_batches_tracked"] == 5


def test_in_fp16_the_loss_scaler_skips_an_overflow(fit, messages):
    """Every gradient overflows at a scale of 2^36, which is halved until they fit."""
    run = fit(*SIX_STEPS, "--trainer.max_steps", "40", *half_on_cpu(scale=2.0**36))
    norms = run.series("train/gradient_norm")
    assert not math.isfinite(norms[1])
    assert math.isfinite(norms[40])
    assert [line for line in messages if "the gradient overflows at a loss scale of" in line]
    assert all(weight.isfinite().all() for weight in weights(run).values())


@pytest.mark.parametrize("policy", ["stop", "skip"])
def test_in_fp16_the_guard_handles_a_loss_that_is_not_finite(fit, policy):
    nan = number_fault("NonFiniteLoss", steps="[2]")
    options = [*SIX_STEPS, *half_on_cpu(scale=1024.0), *nan, "--finite_guard.policy", policy]
    if policy == "stop":
        with pytest.raises(CollectiveError, match="step 3 .*its norm is nan"):
            fit(*options)
    else:
        run = fit(*options)
        assert run.series("train/skipped_steps")[6] == 1
        assert all(weight.isfinite().all() for weight in weights(run).values())


def test_in_fp16_the_guard_stops_if_only_the_norm_overflows(fit):
    """Every gradient is finite, so the scaler would take the step."""
    with pytest.raises(CollectiveError, match="step 2 (.|\n)*their squares overflow"):
        fit(*SIX_STEPS, *half_on_cpu(scale=1024.0), *number_fault("InfiniteGradientAt", step=1, value="1e30"))


def test_in_fp16_the_guard_stops_at_an_overflow_below_a_scale_of_1(fit):
    with pytest.raises(CollectiveError, match="step 2 .*its norm is inf(.|\n)*finite loss"):
        fit(*SIX_STEPS, *half_on_cpu(scale=0.5), *number_fault("InfiniteGradientAt", step=1))

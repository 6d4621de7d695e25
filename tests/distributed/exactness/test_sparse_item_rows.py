"""Tests item vectors that are trained by rows: on any world size, accumulated, resumed, with a NaN."""

import math

import pytest
import torch

from tests.support.faults.number_faults import number_fault
from tests.support.outputs.metric_series import assert_same_series
from tests.support.recommender.row_training import ADAGRAD, EXACT, LAZY, SAMPLED, assert_equal_states, saved, steps

BY_ROWS = pytest.mark.parametrize("options", [ADAGRAD, LAZY], ids=["rowwise_adagrad", "lazy_adamw"])
pytestmark = pytest.mark.slow


@BY_ROWS
def test_one_and_two_processes_train_the_same(lockstep, team, options):
    """Also in micro-batches; the replicas are compared to the bit in each step."""
    options = [*options, *EXACT, *steps(20)]
    alone = lockstep("fit", *options, name="alone")
    accumulated = lockstep("fit", *options, "--data.init_args.micro_batch_size", "4", name="accumulated")
    assert_same_series(accumulated, alone)
    pair = team("fit", *options, name="pair", processes=2)
    assert pair.end() == [0, 0], pair.output
    assert_same_series(pair, alone)
    again = team("fit", *options, name="again", processes=2)
    assert again.end() == [0, 0], again.output
    assert_equal_states(saved(again), saved(pair))
    table = [run_state["state_dict"]["encoder.items.weight"] for run_state in (saved(alone), saved(pair))]
    torch.testing.assert_close(table[1], table[0], rtol=0, atol=1e-3)


@BY_ROWS
def test_a_resumed_run_is_the_same_to_the_bit(lockstep, options):
    """The run has dropout, clipping and bf16-mixed, and its checkpoint is from the middle of an epoch."""
    options = [*options, "--model.init_args.dropout", "0.2", "--trainer.precision", "bf16-mixed"]
    through = lockstep("fit", *options, *steps(24), name="through")
    lockstep("fit", *options, *steps(17), name="stopped")
    resumed = lockstep("fit", *options, *steps(24), "--ckpt_path", "last", name="stopped")
    assert resumed.series("train/loss") == through.series("train/loss")
    assert_equal_states(saved(resumed), saved(through))
    losses = list(through.series("train/loss").values())
    assert sum(losses[-5:]) < sum(losses[:5]), "it learns"


def test_a_step_with_a_nan_is_skipped_on_all_processes(team):
    options = [*ADAGRAD, *EXACT, *steps(8), "--finite_guard.policy", "skip"]
    run = team("fit", *options, *number_fault("NonFiniteLoss", steps="[5]", process=1), name="a", processes=2)
    assert run.end() == [0, 0], run.output
    assert [step for step, loss in run.series("train/loss").items() if math.isnan(loss)] == [6]
    assert "encoder.items.weight" in run.output
    assert run.series("train/skipped_steps")[8] == 1
    state = saved(run)
    assert all(weight.isfinite().all() for weight in state["state_dict"].values())
    (rows,) = (moments for moments in state["optimizer_states"][0]["state"].values() if "row_sum" in moments)
    assert rows["step"] == 7
    assert rows["row_sum"].isfinite().all()


def test_another_item_optimizer_cannot_resume(lockstep):
    lockstep("fit", *ADAGRAD, *steps(2), name="a")
    message = "item_optimizer rowwise_adagrad, and lazy_adamw cannot resume"
    with pytest.raises(ValueError, match=message):
        lockstep("fit", *LAZY, *steps(4), "--ckpt_path", "last", name="a")
    tested = lockstep("test", *SAMPLED, name="a")  # needs no optimizer
    assert "test/ndcg@10" in (tested.folder / "metrics.jsonl").read_text()


@BY_ROWS
def test_a_run_resumes_whose_steps_were_all_skipped(lockstep, options):
    """A table without a step has no state yet, whether or not other parameters have one."""
    nan = [*number_fault("NonFiniteLoss", steps="[0, 1]", process=0), "--finite_guard.policy", "skip"]
    options = [*options, *EXACT, *nan]
    through = lockstep("fit", *options, *steps(4), name="through")
    assert through.series("train/skipped_steps")[4] == 2
    lockstep("fit", *options, *steps(2), name="stopped")
    resumed = lockstep("fit", *options, *steps(4), "--ckpt_path", "last", name="stopped")
    assert_equal_states(saved(resumed), saved(through))

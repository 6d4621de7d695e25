"""NaN, missing gradients and unequal replicas are detected in the same step on all ranks.

Lightning 2.6.6 alone: a NaN loss on one process gives NaN weights on all, which are saved, and exit
code 0; an unused parameter fails one step later, and a parameter that one rank does not use mispairs collectives or
hangs; replicas that differ are never detected.
"""

import math
import re

import pytest
import torch

from engine.data.epoch_order import global_batches
from tests.conftest import TINY
from tests.support.families.tiny_frozen import READER
from tests.support.faults.number_faults import number_fault
from tests.support.faults.step_faults import fault
from tests.support.outputs.log_lines import fields_of, log_lines
from tests.tiers import slow

OPTIONS = [
    *TINY,
    "--trainer.max_epochs",
    "-1",
    "--last_checkpoint.every_n_steps",
    "4",
    "--replica_consistency.every_n_steps",
    "1",
    "--model.init_args.dropout",
    "0",
]
SKIP = ["--finite_guard.policy", "skip"]
SMALL = [*READER, "--best_checkpoint.mode", "max"]  # 5 steps an epoch
ROLLBACK = ["--finite_guard.policy", "rollback"]


def steps(number):
    return ["--trainer.max_steps", str(number)]


def samples_of(step):
    """The training samples of the step after `step` are finished (in the first epoch)."""
    return global_batches(200, 16, seed=1, epoch=0)[step].tolist()


def saved(run):
    return torch.load(run.folder / "checkpoints/last.ckpt", weights_only=True)


def weights(run):
    return saved(run)["state_dict"]


def equal(first, second):
    assert first.keys() == second.keys()
    assert [name for name in first if not torch.equal(first[name], second[name])] == []


@pytest.mark.slow
def test_without_the_guard_a_nan_reaches_all_weights_unnoticed(team):
    """Checks that the injected fault has the effect that the other tests assume."""
    nan = number_fault("NonFiniteLoss", steps="[5]", process=1)
    run = team("fit", *OPTIONS, *steps(8), *nan, *fault("Without", callback="FiniteGuard"), name="a")
    assert run.end() == [0, 0], run.output
    assert any(weight.isnan().any() for weight in weights(run).values())


def test_stop_names_rank_and_samples_and_the_next_start_resumes(team):
    """Plain Lightning: see above, NaN on both processes and exit code 0."""
    through = team("fit", *OPTIONS, *steps(8), name="through")
    run = team("fit", *OPTIONS, *steps(8), *number_fault("NonFiniteLoss", steps="[5]", process=1), name="a")
    assert run.end_cleanly() == [1, 1], run.output
    assert "step 6 (epoch 0, global batch 5 of it): the gradient is not finite, its norm is nan" in run.logs[0]
    named = run.logs[0].split("the loss on rank 1 is not finite; its samples: ")[1].splitlines()[0].split(", ")
    assert len(named) == 8
    assert set(map(int, named)) < set(samples_of(5))
    assert "rank 0 is not finite" not in run.logs[0]
    assert "error:" not in run.logs[1]
    assert saved(run)["global_step"] == 4
    on = team("fit", *OPTIONS, *steps(8), "--ckpt_path", "last", name="a")
    assert on.end() == [0, 0], on.output
    assert through.end() == [0, 0], through.output
    equal(weights(on), weights(through))


def test_a_skipped_sample_has_the_same_effect_on_any_number_of_processes(team):
    bad = samples_of(5)[3]
    options = [
        *OPTIONS,
        *steps(26),
        *SKIP,
        *number_fault("NonFiniteSample", sample=bad),
    ]  # met again in the second epoch
    alone = team("fit", *options, name="alone", processes=1)
    assert alone.end() == [0], alone.output
    pair = team("fit", *options, name="pair")
    assert pair.end() == [0, 0], pair.output
    accumulated = team("fit", *options, "--data.init_args.micro_batch_size", "4", name="accumulated")
    assert accumulated.end() == [0, 0], accumulated.output
    skipped = [step for step, loss in alone.series("train/loss").items() if math.isnan(loss)]
    assert len(skipped) == 2
    assert skipped[0] == 6
    losses = alone.series("train/loss")
    for run in (alone, pair, accumulated):
        counts = run.series("train/skipped_steps")
        assert counts == {step: float(sum(step >= skip for skip in skipped)) for step in range(6, 27)}
        assert all(weight.isfinite().all() for weight in weights(run).values())
        # Not the weights: the gradient of a key's bias is zero but for rounding, which Adam makes a step of full size.
        assert run.series("train/loss") == pytest.approx(losses, abs=1e-5, nan_ok=True)
    assert saved(pair)["global_step"] == 26
    assert saved(pair)["lr_schedulers"][0]["last_epoch"] == 26
    text = (accumulated.folder / "train.log").read_text()
    named = text.split("not finite; its samples: ")[1].splitlines()[0].split(", ")
    assert len(named) == 4, "the one micro-batch that was bad"
    assert str(bad) in named, "the one micro-batch that was bad"


@pytest.mark.slow
def test_a_killed_run_that_skips_steps_resumes_bit_identically(team):
    options = [*OPTIONS, *steps(12), *SKIP, *number_fault("NonFiniteLoss", steps="[2, 3, 9]", process=0)]
    through = team("fit", *options, name="through")
    killed = team("fit", *options, *fault("SignalAt", name="SIGKILL", step=7, process=1), name="killed")
    assert killed.end()[1] == -9, killed.output
    assert saved(killed)["global_step"] == 4
    on = team("fit", *options, "--ckpt_path", "last", name="killed")
    assert on.end() == [0, 0], on.output
    assert through.end() == [0, 0], through.output
    equal(weights(on), weights(through))
    assert on.series("train/skipped_steps") == through.series("train/skipped_steps")
    assert on.series("train/skipped_steps")[12] == 3


@pytest.mark.slow
def test_skipping_stops_when_the_training_has_diverged(team):
    nan = number_fault("NonFiniteLoss", steps="[2, 4, 5, 6]")
    limit = ["--finite_guard.max_skips", "2", "--log.console", "json"]
    run = team("fit", *OPTIONS, *steps(12), *SKIP, *limit, *nan, name="a")
    assert run.end() == [1, 1], run.output
    (failed,) = fields_of(log_lines(run.folder / "log.jsonl"), "run_failed")
    assert "step 7 " in failed["error"]
    assert "The 2 steps before it were skipped as well" in failed["error"]
    assert not (run.folder / "log-1.jsonl").exists(), "a failure is reported once, however many ranks agree on it"
    assert sum("(finite_guard.max_skips)" in line for line in run.logs[0].splitlines()) == 1, "nor twice by the first"
    assert "finite_guard" not in run.logs[1]
    assert all(weight.isfinite().all() for weight in weights(run).values())


def test_an_overflow_in_the_backward_pass_is_traced_to_its_parameter(team):
    run = team("fit", *OPTIONS, *steps(8), *number_fault("InfiniteGradientAt", step=3, process=1), name="a")
    assert run.end() == [1, 1], run.output
    assert "its norm is inf" in run.logs[0]
    assert "every rank has a finite loss" in run.logs[0]
    assert f"gradients that are not finite: {list_of_parameters(run)[-1]} (of" in run.logs[0]


def list_of_parameters(run):
    log = (run.folder / "train.log").read_text()
    return [line.split("not finite: ")[1].split(" (of")[0] for line in log.splitlines() if "are not finite: " in line]


@pytest.mark.slow
def test_rollback_loads_the_last_checkpoint_and_continues_with_the_next_batch(team):
    good = team("fit", *OPTIONS, *steps(4), name="good")
    run = team("fit", *OPTIONS, *steps(7), *ROLLBACK, *number_fault("NonFiniteLoss", steps="[6]", process=1), name="a")
    assert run.end() == [0, 0], run.output
    assert "last.ckpt (after step 4) and the next batch (rollback 1 of at most 3)" in run.output
    assert good.end() == [0, 0], good.output
    equal(weights(run), weights(good))
    moments, before = (saved(trained)["optimizer_states"][0]["state"] for trained in (run, good))
    for index in before:
        equal(moments[index], before[index])
    assert saved(run)["global_step"] == 7
    assert run.series("train/rollbacks") == {7: 1.0}
    on = team("fit", *OPTIONS, *steps(10), *ROLLBACK, "--ckpt_path", "last", name="a")
    assert on.end() == [0, 0], on.output
    assert sorted(on.series("train/loss")) == list(range(1, 11))


@pytest.mark.slow
def test_rollback_stays_on_the_trajectory_that_the_run_goes_on_from(team):
    """last.ckpt is of a later step, and of what the run would have become."""
    longer = team("fit", *SMALL, *steps(20), name="a")
    assert longer.end() == [0, 0], longer.output
    options = [*SMALL, *steps(9), "--ckpt_path", "best"]
    run = team("fit", *options, *ROLLBACK, *number_fault("NonFiniteLoss", steps="[7]"), name="a")
    assert run.end() == [0, 0], run.output
    assert re.search(r"Continuing with the weights of .*/(best|last).ckpt .after step 5.", run.output), run.output
    assert saved(run)["global_step"] == 9


@pytest.mark.slow
def test_rollback_without_a_checkpoint_stops(team):
    run = team("fit", *OPTIONS, *steps(7), *ROLLBACK, *number_fault("NonFiniteLoss", steps="[1]", process=1), name="a")
    assert run.end() == [1, 1], run.output
    assert "There is no checkpoint to roll back to: " in run.logs[0]
    assert "has no checkpoint of this start yet" in run.logs[0]


def test_a_dead_branch_is_named_at_the_first_step(team):
    """Plain Lightning trains a step, then fails on each process with PyTorch's own words and without names."""
    run = team("fit", *OPTIONS, *steps(5), *number_fault("SideBranch"), name="a")
    assert run.end_cleanly() == [1, 1], run.output
    assert "  branch.weight (1, 4)\n  branch.bias (1,)\n" in run.logs[0]
    assert "step" not in run.logs[1]
    assert not (run.folder / "checkpoints/last.ckpt").exists()


def test_a_branch_that_one_rank_does_not_use_is_named_with_the_rank(team):
    """Plain Lightning: the reducers of the two wait for different buckets."""
    run = team("fit", *OPTIONS, *steps(5), *number_fault("SideBranch", unused_on=1), name="a")
    assert run.end_cleanly() == [1, 1], run.output
    assert "  branch.weight (1, 4) on rank 1\n" in run.logs[0]


@pytest.mark.slow
def test_frozen_parts_pass_and_ddp_may_look_for_unused_parameters(team):
    frozen = team("fit", *OPTIONS, *steps(5), *number_fault("SideBranch", frozen="true"), name="frozen")
    assert frozen.end() == [0, 0], frozen.output
    tolerant = ["--trainer.strategy", "ddp_find_unused_parameters_true"]
    found = team("fit", *OPTIONS, *steps(5), *tolerant, *number_fault("SideBranch", unused_on=0), name="found")
    assert found.end() == [0, 0], found.output
    assert "branch.weight (1, 4) on rank 0" in found.output


@pytest.mark.slow
@pytest.mark.parametrize("micro_batch_size", [8, slow(4)])
def test_the_first_step_outside_of_the_reducer_of_ddp_is_bit_identical(team, micro_batch_size):
    options = [*OPTIONS, *steps(5), "--data.init_args.micro_batch_size", str(micro_batch_size)]
    guarded = team("fit", *options, name="guarded")
    plain = team("fit", *options, *fault("Without", callback="UnusedParameterCheck"), name="plain")
    assert guarded.end() == [0, 0] == plain.end(), guarded.output + plain.output
    equal(weights(guarded), weights(plain))
    assert guarded.series("train/loss") == plain.series("train/loss")


def test_a_bit_that_differs_on_one_replica_is_detected(team):
    """Plain Lightning trains the two models on, each on the mean of both gradients."""
    run = team("fit", *OPTIONS, *steps(8), *number_fault("UlpAt", step=5, process=1), name="a")
    assert run.end_cleanly() == [1, 1], run.output
    assert "the replicas are no longer equal after step 6" in run.logs[0]
    assert "(one value on rank 0; another on rank 1)" in run.logs[0]

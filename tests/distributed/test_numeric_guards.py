"""NaN, missing gradients and unequal replicas: noticed at once, by all processes alike, and nothing is spoiled.

What Lightning 2.6.6 does by itself: a NaN loss on one process gives NaN weights on all, which are saved, and exit
code 0; a parameter that nothing uses fails a step later, one that a single process leaves out mispairs collectives or
hangs; replicas that differ are never noticed.
"""

import math

import pytest
import torch

from engine.sampling import global_batches
from tests.conftest import TINY
from tests.distributed.faults import fault
from tests.distributed.reader import READER
from tests.log_lines import fields_of, log_lines

pytestmark = pytest.mark.distributed

OPTIONS = [
    *TINY, "--trainer.max_epochs", "-1", "--last_checkpoint.every_n_steps", "4", "--replica_parity.every_n_steps", "1",
    "--model.init_args.dropout", "0",
]  # fmt: skip
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


def equal(one, other):
    assert one.keys() == other.keys()
    assert [name for name in one if not torch.equal(one[name], other[name])] == []


def test_without_the_guard_one_nan_spoils_all_weights_and_nobody_says_so(team):
    """That the fault is what the other tests take it for."""
    nan = fault("NonFiniteLoss", steps="[5]", process=1)
    run = team("fit", *OPTIONS, *steps(8), *nan, *fault("Without", callback="FiniteGuard"), name="a")
    assert run.end() == [0, 0], run.output
    assert any(weight.isnan().any() for weight in weights(run).values())


def test_stop_names_process_and_samples_and_a_next_start_goes_on(team):
    """Plain Lightning: see above, NaN on both processes and exit code 0."""
    through = team("fit", *OPTIONS, *steps(8), name="through")
    run = team("fit", *OPTIONS, *steps(8), *fault("NonFiniteLoss", steps="[5]", process=1), name="a")
    assert run.end() == [1, 1] and run.survivors == [], run.output
    assert "step 6 (epoch 0, global batch 5 of it): the gradient is not finite, its norm is nan" in run.said[0]
    named = run.said[0].split("the loss on process 1 is not finite; its samples: ")[1].splitlines()[0].split(", ")
    assert len(named) == 8 and set(map(int, named)) < set(samples_of(5))
    assert "process 0 is not finite" not in run.said[0] and "error:" not in run.said[1]
    assert saved(run)["global_step"] == 4
    on = team("fit", *OPTIONS, *steps(8), "--ckpt_path", "last", name="a")
    assert on.end() == [0, 0], on.output
    assert through.end() == [0, 0], through.output
    equal(weights(on), weights(through))


def test_a_skipped_sample_has_the_same_effect_on_any_number_of_processes(team):
    bad = samples_of(5)[3]
    options = [*OPTIONS, *steps(26), *SKIP, *fault("NonFiniteSample", sample=bad)]  # met again in the second epoch
    alone = team("fit", *options, name="alone", processes=1)
    assert alone.end() == [0], alone.output
    pair = team("fit", *options, name="pair")
    assert pair.end() == [0, 0], pair.output
    accumulated = team("fit", *options, "--data.init_args.micro_batch_size", "4", name="accumulated")
    assert accumulated.end() == [0, 0], accumulated.output
    skipped = [step for step, loss in alone.series("train/loss").items() if math.isnan(loss)]
    assert len(skipped) == 2 and skipped[0] == 6
    losses = alone.series("train/loss")
    for run in (alone, pair, accumulated):
        counts = run.series("train/skipped_steps")
        assert counts == {step: float(sum(step >= one for one in skipped)) for step in range(6, 27)}
        assert all(weight.isfinite().all() for weight in weights(run).values())
        # Not the weights: the gradient of a key's bias is zero but for rounding, which Adam makes a step of full size.
        assert run.series("train/loss") == pytest.approx(losses, abs=1e-5, nan_ok=True)
    assert saved(pair)["global_step"] == 26 and saved(pair)["lr_schedulers"][0]["last_epoch"] == 26
    text = (accumulated.folder / "train.log").read_text()
    named = text.split("not finite; its samples: ")[1].splitlines()[0].split(", ")
    assert len(named) == 4 and str(bad) in named, "the one micro-batch that was bad"


def test_a_skipping_run_that_is_killed_goes_on_as_if_it_had_not_been(team):
    options = [*OPTIONS, *steps(12), *SKIP, *fault("NonFiniteLoss", steps="[2, 3, 9]", process=0)]
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


def test_skipping_stops_when_the_training_has_diverged(team):
    nan = fault("NonFiniteLoss", steps="[2, 4, 5, 6]")
    limit = ["--finite_guard.max_skips", "2", "--log.console", "json"]
    run = team("fit", *OPTIONS, *steps(12), *SKIP, *limit, *nan, name="a")
    assert run.end() == [1, 1], run.output
    (failed,) = fields_of(log_lines(run.folder / "log.jsonl"), "run_failed")
    assert "step 7 " in failed["error"] and "in the 2 steps before (finite_guard.max_skips)" in failed["error"]
    assert not (run.folder / "log-1.jsonl").exists(), "one failure is told once, however many processes agree on it"
    assert sum("(finite_guard.max_skips)" in line for line in run.said[0].splitlines()) == 1, "nor twice by the first"
    assert "finite_guard" not in run.said[1]
    assert all(weight.isfinite().all() for weight in weights(run).values())


def test_an_overflow_in_the_backward_pass_is_traced_to_its_parameter(team):
    run = team("fit", *OPTIONS, *steps(8), *fault("InfiniteGradientAt", step=3, process=1), name="a")
    assert run.end() == [1, 1], run.output
    assert "its norm is inf" in run.said[0] and "every process has a finite loss" in run.said[0]
    assert f"gradients that are not finite: {list_of_parameters(run)[-1]} (of" in run.said[0]


def list_of_parameters(run):
    log = (run.folder / "train.log").read_text()
    return [line.split("not finite: ")[1].split(" (of")[0] for line in log.splitlines() if "are not finite: " in line]


def test_rollback_goes_on_with_the_weights_of_the_last_checkpoint_and_the_next_batch(team):
    good = team("fit", *OPTIONS, *steps(4), name="good")
    run = team("fit", *OPTIONS, *steps(7), *ROLLBACK, *fault("NonFiniteLoss", steps="[6]", process=1), name="a")
    assert run.end() == [0, 0], run.output
    assert "last.ckpt (after step 4) and the next batch (rollback 1 of at most 3)" in run.output
    assert good.end() == [0, 0], good.output
    equal(weights(run), weights(good))
    moments, before = (saved(one)["optimizer_states"][0]["state"] for one in (run, good))
    for index in before:
        equal(moments[index], before[index])
    assert saved(run)["global_step"] == 7 and run.series("train/rollbacks") == {7: 1.0}
    on = team("fit", *OPTIONS, *steps(10), *ROLLBACK, "--ckpt_path", "last", name="a")
    assert on.end() == [0, 0], on.output
    assert sorted(on.series("train/loss")) == list(range(1, 11))


def test_rollback_stays_on_the_trajectory_that_the_run_goes_on_from(team):
    """last.ckpt is of a later step, and of what the run would have become."""
    longer = team("fit", *SMALL, *steps(20), name="a")
    assert longer.end() == [0, 0], longer.output
    options = [*SMALL, *steps(9), "--ckpt_path", "best"]
    run = team("fit", *options, *ROLLBACK, *fault("NonFiniteLoss", steps="[7]"), name="a")
    assert run.end() == [0, 0], run.output
    assert "Going on with the weights of runs/a/checkpoints/best.ckpt (after step 5)" in run.output
    assert saved(run)["global_step"] == 9


def test_rollback_without_a_checkpoint_stops(team):
    run = team("fit", *OPTIONS, *steps(7), *ROLLBACK, *fault("NonFiniteLoss", steps="[1]", process=1), name="a")
    assert run.end() == [1, 1], run.output
    assert "There is no checkpoint to roll back to: " in run.said[0] and "has none yet" in run.said[0]


def test_a_dead_branch_is_named_at_the_first_step(team):
    """Plain Lightning trains a step, then fails on each process with PyTorch's own words and without names."""
    run = team("fit", *OPTIONS, *steps(5), *fault("SideBranch"), name="a")
    assert run.end() == [1, 1] and run.survivors == [], run.output
    assert "  branch.weight (1, 4)\n  branch.bias (1,)\n" in run.said[0] and "step" not in run.said[1]
    assert not (run.folder / "checkpoints/last.ckpt").exists()


def test_a_branch_that_one_process_leaves_out_is_named_with_the_process(team):
    """Plain Lightning: the reducers of the two wait for different buckets."""
    run = team("fit", *OPTIONS, *steps(5), *fault("SideBranch", unused_on=1), name="a")
    assert run.end() == [1, 1] and run.survivors == [], run.output
    assert "  branch.weight (1, 4) on process 1\n" in run.said[0]


def test_frozen_parts_pass_and_ddp_may_be_told_to_look_for_unused_ones(team):
    frozen = team("fit", *OPTIONS, *steps(5), *fault("SideBranch", frozen="true"), name="frozen")
    assert frozen.end() == [0, 0], frozen.output
    tolerant = ["--trainer.strategy", "ddp_find_unused_parameters_true"]
    found = team("fit", *OPTIONS, *steps(5), *tolerant, *fault("SideBranch", unused_on=0), name="found")
    assert found.end() == [0, 0], found.output
    assert "branch.weight (1, 4) on process 0" in found.output


@pytest.mark.parametrize("micro_batch_size", [8, 4])
def test_the_first_step_outside_of_ddps_reducer_changes_no_digit(team, micro_batch_size):
    options = [*OPTIONS, *steps(5), "--data.init_args.micro_batch_size", str(micro_batch_size)]
    guarded = team("fit", *options, name="guarded")
    plain = team("fit", *options, *fault("Without", callback="GradientCoverage"), name="plain")
    assert guarded.end() == [0, 0] == plain.end(), guarded.output + plain.output
    equal(weights(guarded), weights(plain))
    assert guarded.series("train/loss") == plain.series("train/loss")


def test_a_last_digit_on_one_process_is_noticed(team):
    """Plain Lightning trains the two models on, each on the mean of both gradients."""
    run = team("fit", *OPTIONS, *steps(8), *fault("UlpAt", step=3, process=1), name="a")
    assert run.end() == [1, 1] and run.survivors == [], run.output
    assert "the replicas are no longer equal after step 4" in run.said[0]
    assert "(one value on process 0; another on process 1)" in run.said[0]

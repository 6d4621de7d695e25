"""Tests that parameters without a gradient are reported, refused or accepted, on one rank."""

import pytest

from engine.distributed.errors import CollectiveError
from tests.conftest import TINY
from tests.support.faults.number_faults import number_fault

THREE_STEPS = [*TINY, "--trainer.max_steps", "3"]


def test_a_dead_branch_is_named_on_one_process_too(fit):
    with pytest.raises(CollectiveError, match=r"first step:\n  branch.weight \(1, 4\)\n  branch.bias \(1,\)\nRemove"):
        fit(*THREE_STEPS, *number_fault("SideBranch"))


def test_after_a_warning_the_training_continues(fit, messages):
    run = fit(*THREE_STEPS, *number_fault("SideBranch"), "--unused_parameters.policy", "warn")
    assert sorted(run.series("train/loss")) == [1, 2, 3]
    assert len([line for line in messages if "branch.weight" in line]) == 1


def test_a_frozen_branch_passes(fit, messages):
    fit(*THREE_STEPS, *number_fault("SideBranch", frozen="true"))
    assert not [line for line in messages if "branch" in line]


def test_of_an_accumulated_step_any_micro_batch_counts(fit):
    """A single rank has no reducer."""
    accumulated = [*THREE_STEPS, "--data.init_args.micro_batch_size", "4"]
    run = fit(*accumulated, *number_fault("SideBranch", unused_on=1))
    assert sorted(run.series("train/loss")) == [1, 2, 3]

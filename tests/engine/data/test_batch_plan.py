"""Tests the arithmetic of global batch, micro-batch, ranks and accumulation."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.data.batch_plan import BatchPlan


def test_the_plan_prints_its_arithmetic_in_one_line():
    plan = BatchPlan.derive(world_size=4, batch_size=256, micro_batch_size=16)
    assert (plan.micro_batch_size, plan.accumulation) == (16, 4)
    assert str(plan) == "global batch 256 = 4 ranks x 16 samples x 4 accumulation steps"


def test_ranks_that_read_the_same_samples_are_groups():
    plan = BatchPlan.derive(world_size=2, batch_size=16, micro_batch_size=8, group_size=4)
    assert str(plan) == "global batch 16 = 2 groups of 4 ranks x 8 samples x 1 accumulation step"
    assert str(plan.halved()) == "global batch 16 = 2 groups of 4 ranks x 4 samples x 2 accumulation steps"
    assert str(BatchPlan.derive(world_size=1, batch_size=4, group_size=2)).startswith("global batch 4 = 1 group of 2")
    with pytest.raises(ValueError, match="batch_size 9 does not split evenly over 2 groups of 4 ranks"):
        BatchPlan.derive(world_size=2, batch_size=9, group_size=4)


def test_per_device_gives_the_global_one():
    assert BatchPlan.derive(world_size=8, batch_size_per_device=32).batch_size == 256


def test_a_micro_batch_larger_than_the_share_is_the_share():
    plan = BatchPlan.derive(world_size=4, batch_size=16, micro_batch_size=64)
    assert str(plan) == "global batch 16 = 4 ranks x 4 samples x 1 accumulation step"


@given(st.integers(1, 64), st.integers(1, 64), st.integers(1, 16))
def test_accepted_plans_split_evenly(processes, batch_size, micro):
    try:
        plan = BatchPlan.derive(world_size=processes, batch_size=batch_size, micro_batch_size=micro)
    except ValueError:
        return
    assert plan.world_size * plan.micro_batch_size * plan.accumulation == batch_size
    assert plan.micro_batch_size <= micro


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "exactly one of data.init_args.batch_size"),
        ({"batch_size": 8, "batch_size_per_device": 8}, "exactly one of data.init_args.batch_size"),
        ({"batch_size": 10}, "does not split evenly over 4 ranks; the nearest that do are 8 and 12"),
        ({"batch_size": 2}, "the nearest that do are 4"),
        ({"batch_size": 48, "micro_batch_size": 5}, "micro_batch_size 5 does not divide the 12 samples.*4 and 6"),
        ({"batch_size": 0}, "data.init_args.batch_size must be at least 1, got 0"),
        ({"batch_size_per_device": 0}, "data.init_args.batch_size_per_device must be at least 1, got 0"),
        ({"batch_size": 8, "micro_batch_size": 0}, "data.init_args.micro_batch_size must be at least 1, got 0"),
        ({"batch_size": 52, "micro_batch_size": 12}, "12 does not divide the 13 samples.*are 1 and 13"),
    ],
)
def test_uneven_splits_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        BatchPlan.derive(world_size=4, **options)

"""Tests the samplers: each sample once an epoch, in batches that do not depend on the world size."""

from itertools import chain

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.data import samplers as samplers_module
from engine.data.epoch_order import ShuffleBlocks, global_batches
from engine.data.samplers import PADDING_INDEX, EvaluationSampler, TrainSampler
from tests.engine.data.shuffle_blocks import block_of, blocked

sizes = st.integers(1, 200)


def drawn(samplers):
    """Return the global batches of all ranks in their next epoch, each as a sorted list of samples."""
    steps = []
    accumulation = samplers[0].accumulation
    micro_batches = [list(sampler) for sampler in samplers]
    assert len({len(draws) for draws in micro_batches}) == 1, "a rank would wait for the others"
    for start in range(0, len(micro_batches[0]), accumulation):
        parts = chain.from_iterable(draws[start : start + accumulation] for draws in micro_batches)
        indices = np.concatenate([part.indices for part in parts])
        steps.append(sorted(indices[indices != PADDING_INDEX].tolist()))
    return steps


def ranks(num_samples, batch_size, processes, accumulation=1, **options):
    return [
        TrainSampler(
            num_samples, batch_size, seed=5, rank=p, world_size=processes, accumulation=accumulation, **options
        )
        for p in range(processes)
    ]


def shares_of(samplers, number):
    """Return the samples of each micro-batch of a global batch of the first epoch, without padding."""
    return [
        draw.indices[draw.indices != PADDING_INDEX]
        for process, sampler in enumerate(samplers)
        for draw in sampler.requests_of(0, number, process)
    ]


@settings(max_examples=60, deadline=None)
@given(sizes, st.integers(1, 4), st.integers(1, 4), st.integers(1, 4))
def test_global_batches_do_not_depend_on_the_processes(num_samples, per_share, processes, accumulation):
    batch_size = per_share * 12
    assert drawn(ranks(num_samples, batch_size, processes, accumulation)) == drawn(ranks(num_samples, batch_size, 1))


def test_the_shares_of_old_checkpoints_are_unchanged():
    dealt = [list(TrainSampler(10, 4, seed=1, rank=p, world_size=2))[0].indices.tolist() for p in range(2)]
    assert dealt == [[5, 1], [9, 7]]


def test_another_epoch_has_another_order():
    samplers = ranks(100, 10, 1)
    first, second = drawn(samplers), drawn(samplers)
    assert first != second
    assert sorted(chain(*first)) == sorted(chain(*second))


def test_a_resumed_epoch_has_exactly_the_remaining_samples():
    uninterrupted = ranks(103, 8, 1)
    epochs = [drawn(uninterrupted) for _ in range(5)]
    for processes in (1, 2, 4):
        resumed = ranks(103, 8, processes, resume=(3, 5))
        assert drawn(resumed) == epochs[3][5:]
        assert drawn(resumed) == epochs[4]


@settings(max_examples=60, deadline=None)
@given(sizes, st.integers(1, 16), st.integers(1, 5))
def test_evaluation_sees_every_sample_once_in_the_same_batches(num_samples, batch_size, processes):
    alone = [draw.indices.tolist() for draw in EvaluationSampler(num_samples, batch_size)]
    parts = [
        [draw.indices.tolist() for draw in EvaluationSampler(num_samples, batch_size, rank=p, world_size=processes)]
        for p in range(processes)
    ]
    assert len({len(part) for part in parts}) == 1, "a rank would wait for the others"
    together = [batch for turn in zip(*parts, strict=True) for batch in turn if batch != [PADDING_INDEX]]
    assert together == alone
    assert list(chain(*alone)) == list(range(num_samples))


@settings(deadline=None)
@given(st.integers(1, 60), st.integers(1, 5), st.integers(1, 4), st.integers(0, 99))
def test_shares_of_equal_cost_differ_by_one_sample_at_most(num_samples, processes, accumulation, seed):
    """Shares of equal cost do not change the global batches, and their sizes differ by at most one sample."""
    shares = processes * accumulation
    size = 4 * shares
    sample_costs = np.random.default_rng(seed).choice(np.array([0, 1, 999], np.uint16), num_samples)

    def dealt(number):
        draws = [
            TrainSampler(
                num_samples,
                size,
                seed=seed,
                rank=process,
                world_size=processes,
                accumulation=accumulation,
                sample_costs=sample_costs,
            ).requests_of(0, number, process)
            for process in range(processes)
        ]
        return [draw.indices[draw.indices != PADDING_INDEX] for of_process in draws for draw in of_process]

    for number, batch in enumerate(global_batches(num_samples, size, seed, 0)):
        parts = dealt(number)
        assert sorted(np.concatenate(parts)) == sorted(batch)
        assert max(map(len, parts)) - min(map(len, parts)) <= 1
        if len(batch) == size:
            sums = [int(sample_costs[part].sum()) for part in parts]
            assert max(sums) - min(sums) <= sample_costs[batch].max() - sample_costs[batch].min()


@settings(max_examples=60, deadline=None)
@given(blocked(), st.integers(1, 3), st.integers(1, 4), st.integers(1, 4))
def test_global_batches_of_blocks_do_not_depend_on_the_processes(found, per_share, processes, accumulation):
    num_samples, blocks = found
    options = {"blocks": lambda epoch: blocks}
    one = drawn(ranks(num_samples, per_share * 12, 1, **options))
    assert drawn(ranks(num_samples, per_share * 12, processes, accumulation, **options)) == one


@settings(max_examples=60, deadline=None)
@given(blocked(), st.integers(1, 4), st.integers(1, 3))
def test_ranks_get_contiguous_blocks(found, processes, accumulation):
    """In a batch, one rank or adjacent ranks read a block. The sizes of the shares differ by at most one."""
    num_samples, blocks = found
    samplers = ranks(num_samples, 24, processes, accumulation, blocks=lambda epoch: blocks)
    for number, batch in enumerate(global_batches(num_samples, 24, 5, 0, blocks)):
        parts = shares_of(samplers, number)
        assert np.concatenate(parts).tolist() == batch.tolist()
        assert max(map(len, parts)) - min(map(len, parts)) <= 1
        pairs = sum(len(set(block_of(blocks, part).tolist())) for part in parts)
        assert pairs <= len(set(block_of(blocks, batch).tolist())) + processes * accumulation - 1


@settings(max_examples=60, deadline=None)
@given(blocked(), st.integers(1, 4), st.integers(1, 3), st.integers(1, 4), st.integers(0, 9))
def test_ranks_get_equal_shares_of_each_group(found, processes, accumulation, groups, seed):
    """The sizes of the shares of each group, and in total, differ by at most one. Blocks stay contiguous."""
    num_samples, blocks = found
    groups_of_blocks = np.random.default_rng(seed).integers(0, groups, len(blocks.starts))
    grouped = blocks._replace(groups=groups_of_blocks)
    samplers = ranks(num_samples, 24, processes, accumulation, blocks=lambda epoch: grouped)
    for number, batch in enumerate(global_batches(num_samples, 24, 5, 0, blocks)):
        parts = shares_of(samplers, number)
        assert sorted(np.concatenate(parts)) == sorted(batch), "the content of a global batch does not change"
        assert max(map(len, parts)) - min(map(len, parts)) <= 1
        for group in range(groups):
            of_group = [part[groups_of_blocks[block_of(blocks, part)] == group] for part in parts]
            assert max(map(len, of_group)) - min(map(len, of_group)) <= 1
            batch_of_group = batch[groups_of_blocks[block_of(blocks, batch)] == group]
            assert np.concatenate(of_group).tolist() == batch_of_group.tolist()
        pairs = sum(len(set(block_of(blocks, part).tolist())) for part in parts)
        present = len(set(groups_of_blocks[block_of(blocks, batch)].tolist()))
        assert pairs <= len(set(block_of(blocks, batch).tolist())) + present * (processes * accumulation - 1)


@settings(max_examples=60, deadline=None)
@given(blocked(), st.integers(1, 4), st.integers(1, 3))
def test_a_single_group_changes_nothing(found, processes, accumulation):
    num_samples, blocks = found
    shares = processes * accumulation
    for given_blocks in (blocks, blocks._replace(groups=np.full(len(blocks.starts), 7))):
        samplers = ranks(num_samples, 24, processes, accumulation, blocks=lambda epoch: given_blocks)  # noqa: B023
        for number, batch in enumerate(global_batches(num_samples, 24, 5, 0, blocks)):
            draws = [draw for process in range(processes) for draw in samplers[process].requests_of(0, number, process)]
            for draw, part in zip(draws, np.array_split(batch, shares), strict=True):
                assert draw.indices.tolist() == (part.tolist() or [PADDING_INDEX])


def test_a_resumed_epoch_of_blocks_has_exactly_the_remaining_samples():
    blocks = ShuffleBlocks(np.arange(0, 103, 7), np.ones(15, np.int64), 3)
    other = ShuffleBlocks(np.arange(0, 103, 9), np.ones(12, np.int64), 3)

    def blocks_of(epoch):
        return other if epoch % 2 else blocks

    uninterrupted = ranks(103, 8, 1, blocks=blocks_of)
    epochs = [drawn(uninterrupted) for _ in range(5)]
    for processes in (1, 2, 4):
        resumed = ranks(103, 8, processes, resume=(3, 5), blocks=blocks_of)
        assert drawn(resumed) == epochs[3][5:]
        assert drawn(resumed) == epochs[4]


def test_the_requests_of_all_ranks_order_an_epoch_only_once(monkeypatch):
    """A non-finite step looks up the samples of each rank: a thousand ranks must not shuffle the epoch as often."""
    orders = []

    def count_orders(*arguments):
        orders.append(arguments)
        return global_batches(*arguments)

    monkeypatch.setattr(samplers_module, "global_batches", count_orders)
    sampler = TrainSampler(64, 16, seed=0, world_size=4)
    assert [len(sampler.requests_of(1, 2, rank)) for rank in range(4)] == [1] * 4
    assert len(orders) == 1
    assert not np.array_equal(sampler.requests_of(1, 3, 0)[0].indices, sampler.requests_of(1, 2, 0)[0].indices)

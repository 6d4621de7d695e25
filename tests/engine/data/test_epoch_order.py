"""Tests the order of an epoch: each sample once, and blocks of samples that are read together."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.data.epoch_order import ShuffleBlocks, global_batches
from tests.engine.data.shuffle_blocks import block_of, blocked


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 200), st.integers(1, 32), st.integers(0, 3))
def test_an_epoch_holds_every_sample_once(num_samples, batch_size, epoch):
    batches = global_batches(num_samples, batch_size, 5, epoch)
    assert sorted(np.concatenate(batches).tolist()) == list(range(num_samples))
    assert [len(batch) for batch in batches[:-1]] == [batch_size] * (len(batches) - 1)


def test_the_order_of_old_checkpoints_is_unchanged():
    assert [batch.tolist() for batch in global_batches(10, 4, seed=1, epoch=0)] == [
        [5, 9, 1, 7],
        [0, 4, 3, 6],
        [2, 8],
    ]
    assert [batch.tolist() for batch in global_batches(10, 4, seed=1, epoch=1)] == [
        [7, 6, 0, 4],
        [2, 5, 9, 1],
        [8, 3],
    ]
    first, second = global_batches(6040, 128, seed=1, epoch=0)[:2]
    assert first[:8].tolist() == [4056, 820, 4001, 5605, 3755, 3232, 4263, 3032]
    assert second[:8].tolist() == [2726, 2298, 5157, 3618, 1732, 2829, 1151, 3783]


@settings(max_examples=60, deadline=None)
@given(blocked(), st.integers(1, 32), st.integers(0, 3))
def test_an_epoch_of_blocks_holds_every_sample_once(found, batch_size, epoch):
    num_samples, blocks = found
    batches = global_batches(num_samples, batch_size, 5, epoch, blocks)
    assert sorted(np.concatenate(batches).tolist()) == list(range(num_samples))
    assert [len(batch) for batch in batches[:-1]] == [batch_size] * (len(batches) - 1)


@settings(max_examples=60, deadline=None)
@given(blocked(), st.integers(1, 32), st.integers(0, 3))
def test_open_blocks_fit_into_a_window(found, batch_size, epoch):
    """Blocks that are read in part and needed again are never larger than a window and one block."""
    num_samples, blocks = found
    batches = global_batches(num_samples, batch_size, 5, epoch, blocks)
    seen = [set(block_of(blocks, batch).tolist()) for batch in batches]
    first = {block: at for at in reversed(range(len(seen))) for block in seen[at]}
    last = {block: at for at in range(len(seen)) for block in seen[at]}
    for at in range(len(seen)):
        # A block that only this batch reads need not be kept.
        open_now = [block for block in first if first[block] <= at and last[block] > at]
        assert sum(int(blocks.sizes[block]) for block in open_now) <= blocks.window + blocks.sizes.max()


def test_blocks_of_size_zero_are_in_one_window():
    """Every order is then as likely as without blocks."""
    blocks = ShuffleBlocks(np.arange(0, 1000, 10), np.zeros(100, np.int64), 1)
    first = block_of(blocks, global_batches(1000, 100, 5, 0, blocks)[0])
    assert len(set(first.tolist())) > 50


def test_the_order_of_blocks_of_old_checkpoints_is_unchanged():
    blocks = ShuffleBlocks(np.array([0, 3, 4, 8]), np.array([2, 1, 2, 1]), 3)
    assert [batch.tolist() for batch in global_batches(10, 4, seed=1, epoch=0, blocks=blocks)] == [
        [5, 7, 4, 9],
        [6, 1, 0, 8],
        [2, 3],
    ]

"""Orders the samples of an epoch: a pure function of (seed, epoch, position), independent of the number of ranks.

An epoch is a list of *global batches*, which the optimizer steps of all ranks together train on.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.determinism.stateless_rng import hash_bits, hash_permutation

_SAMPLE_ORDER = 1  # separates these random numbers from those that data sets derive from the same seed
_BLOCK_ORDER = 0xB10C


class ShuffleBlocks(NamedTuple):
    """Blocks of samples that are cheap to read together. A block ends where the next block starts."""

    starts: NDArray[np.int64]  # [blocks] first sample of each block, ascending from 0
    sizes: NDArray[np.int64]  # [blocks] memory to keep each block, in any unit; 0 for none
    window: int  # size, in the same unit, of the blocks that are shuffled together
    groups: NDArray[np.int64] | None = None
    """[blocks] group of each block. Every rank gets the same number of samples of each group. None: one group."""


def global_batches(
    num_samples: int, batch_size: int, seed: int, epoch: int, blocks: ShuffleBlocks | None = None
) -> list[NDArray[np.int64]]:
    """Return the global batches of an epoch: every sample once, in random order. The last batch may be smaller.

    With `blocks`, the order is random in two steps: the blocks are shuffled, then the samples within each window of
    consecutive blocks. All samples of a block thus come within one window, whose blocks can be kept in memory. Within a
    batch, samples of a block are adjacent, in the order of the blocks in the window.

    Args:
        num_samples: samples of the data set.
        batch_size: samples of a global batch.
        seed: seed of the run.
        epoch: the epoch.
        blocks: samples that are cheap to read together; None if all samples are independent.
    """
    starts = range(0, num_samples, batch_size)
    if blocks is None:
        order = hash_permutation(num_samples, seed, epoch, _SAMPLE_ORDER)
        return [order[start : start + batch_size] for start in starts]
    block_order = hash_permutation(len(blocks.starts), seed, epoch, _BLOCK_ORDER)
    sizes, lengths = blocks.sizes[block_order], np.diff(blocks.starts, append=num_samples)[block_order]  # [blocks] each
    # The memory of the blocks before a block decides its window, and its index in the window.
    windows, offsets = np.divmod(np.cumsum(sizes) - sizes, blocks.window)
    window_order = np.argsort(np.argsort(offsets, kind="stable"))
    windows, window_order = np.repeat(windows, lengths), np.repeat(window_order, lengths)  # from blocks to samples
    # [num_samples]: the samples block by block, in the random order of the blocks
    samples = np.repeat(blocks.starts[block_order] - np.cumsum(lengths) + lengths, lengths) + np.arange(num_samples)
    # `lexsort` sorts by its last key first: by window, and at random within a window.
    order = np.lexsort((hash_bits(seed, epoch, _SAMPLE_ORDER, samples), windows))
    batches = (order[start : start + batch_size] for start in starts)
    return [samples[batch[np.argsort(window_order[batch], kind="stable")]] for batch in batches]

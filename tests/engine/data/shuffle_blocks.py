"""Draws blocks of samples for the tests of their order."""

import numpy as np
from hypothesis import strategies as st

from engine.data.epoch_order import ShuffleBlocks


@st.composite
def blocked(draw):
    """(number of samples, blocks)"""
    lengths = np.array(draw(st.lists(st.integers(1, 12), min_size=1, max_size=30)))
    sizes = draw(st.lists(st.integers(0, 9), min_size=len(lengths), max_size=len(lengths)))
    return int(lengths.sum()), ShuffleBlocks(np.cumsum(lengths) - lengths, np.array(sizes), draw(st.integers(1, 40)))


def block_of(blocks, samples):
    return np.searchsorted(blocks.starts, samples, side="right") - 1

"""Compares the encoder's operations counted from shapes with those that torch counts."""

import pytest
from torch.utils.flop_counter import FlopCounterMode

from tests.support.temporal.encoders import KINDS, encoder, series


@pytest.mark.parametrize("tokens", KINDS)
def test_operations_are_counted_as_torch_counts_them(tokens):
    network, batch = encoder(tokens).train(), series([5, 12, 30], room=3)
    counter = FlopCounterMode(display=False)
    with counter:
        network(batch).sum().backward()
    assert network.flops(batch) == counter.get_total_flops()

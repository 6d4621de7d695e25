"""What the encoder takes is counted from shapes as torch counts it while it runs."""

import pytest
from torch.utils.flop_counter import FlopCounterMode

from tests.lightning_modules.temporal.test_encoder import KINDS, encoder, series


@pytest.mark.parametrize("tokens", KINDS)
def test_as_torch_counts_them(tokens):
    network, batch = encoder(tokens).train(), series([5, 12, 30], room=3)
    counter = FlopCounterMode(display=False)
    with counter:
        network(batch).sum().backward()
    assert network.flops(batch) == counter.get_total_flops()

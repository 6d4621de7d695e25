"""Checks that the first step of a start is reduced as all later steps, to the bit."""

import os
import signal

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from engine.distributed.ddp_reducer import reduce_local_gradients
from tests.distributed.conftest import forge  # noqa: F401  (fixture)
from tests.engine.distributed.reduced_steps import RANKS


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.parametrize("compression", ["none", "bfloat16"])
def test_the_first_step_adds_in_the_order_of_later_ones(tmp_path, forge, compression):  # noqa: F811
    module = ["-m", "tests.engine.distributed.reduced_steps"]
    outputs = [tmp_path / f"{rank}.log" for rank in range(RANKS)]
    pids = [
        forge.start([*module, str(rank), str(tmp_path), compression], os.environ, tmp_path, output)
        for rank, output in enumerate(outputs)
    ]
    for pid, code in zip(pids, forge.wait(pids, 120), strict=True):
        if code is None:
            os.kill(pid, signal.SIGABRT)  # faulthandler writes the traceback of each thread to the rank's output
    assert forge.wait(pids, 10) == [0] * RANKS, [output.read_text() for output in outputs]
    for rank in range(RANKS):
        first, second, third, *usual = torch.load(tmp_path / f"{rank}.pt", weights_only=True)
        assert len(first) == 12
        assert all(map(torch.equal, first, second))
        assert all(map(torch.equal, first, third))
        assert not all(map(torch.equal, usual[0], usual[2])), "DDP itself adds in another order in its first step"
        tolerance = 1e-5 if compression == "none" else 0.05
        torch.testing.assert_close(first, usual[2], rtol=tolerance, atol=tolerance)


def test_a_missing_gradient_counts_as_zeros(tmp_path):
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/rendezvous", rank=0, world_size=1)
    try:
        model = DistributedDataParallel(nn.Bilinear(2, 2, 2))
        weight, bias = model.module.weight, model.module.bias
        weight.grad = torch.randn_like(weight)
        expected = weight.grad.clone()
        model.require_backward_grad_sync = False
        reduce_local_gradients(model)
        assert torch.equal(weight.grad, expected)
        assert torch.equal(bias.grad, torch.zeros_like(bias))
        assert model.require_backward_grad_sync
        # DDP's must not be the last reference to a group: its destructor waits for gloo's threads with the GIL held,
        # and such a thread may need the GIL to free the last all-reduce.
        del model
    finally:
        torch.distributed.destroy_process_group()

"""Checks that the first step of a start is reduced as all later steps, to the bit."""

from copy import deepcopy

import pytest
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from engine.distributed.ddp_comm_hook import compress_gradients
from engine.distributed.ddp_reducer import reduce_local_gradients

RANKS = 3
"""Number of ranks; a sum over two ranks does not depend on the order."""


def gradients(model: nn.Module) -> list[Tensor]:
    found = [parameter.grad for parameter in model.parameters()]
    model.zero_grad()
    return [gradient.clone() for gradient in found if gradient is not None]


def measure(rank: int, folder: str, compression: torch.dtype | None) -> None:
    """Save the gradients of a first local step, of later steps, and of three usual steps of DDP: [6 steps][tensors]."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=RANKS)
    torch.manual_seed(0)
    network = nn.Sequential(*(nn.Sequential(nn.Linear(37, 37), nn.Tanh()) for _ in range(6)))
    inputs = torch.randn(5, 37, generator=torch.Generator().manual_seed(rank))
    models = [DistributedDataParallel(deepcopy(network), bucket_cap_mb=0.01) for _ in range(2)]
    for model in models if compression else []:
        compress_gradients(model, compression)
    with models[0].no_sync():
        models[0](inputs).square().sum().backward()
    reduce_local_gradients(models[0])
    found = [gradients(models[0])]
    for model in (models[0], models[0], *[models[1]] * 3):
        model(inputs).square().sum().backward()
        found.append(gradients(model))
    torch.save(found, f"{folder}/{rank}.pt")
    torch.distributed.destroy_process_group()


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.parametrize("compression", [None, torch.bfloat16])
def test_the_first_step_adds_in_the_order_of_later_ones(tmp_path, compression):
    torch.multiprocessing.spawn(measure, (str(tmp_path), compression), nprocs=RANKS)
    for rank in range(RANKS):
        first, second, third, *usual = torch.load(tmp_path / f"{rank}.pt", weights_only=True)
        assert len(first) == 12 and all(map(torch.equal, first, second)) and all(map(torch.equal, first, third))
        assert not all(map(torch.equal, usual[0], usual[2])), "DDP itself adds in another order in its first step"
        tolerance = 0.05 if compression else 1e-5
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
        assert torch.equal(weight.grad, expected) and torch.equal(bias.grad, torch.zeros_like(bias))
        assert model.require_backward_grad_sync
    finally:
        torch.distributed.destroy_process_group()

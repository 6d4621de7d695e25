"""Tests gradient norms and clipping, of whole weights and of shards."""

import math
from copy import deepcopy

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from engine.optim.grad_norm import clip_values, grad_norm_per_group, gradient_norm, local_shards


def parameters(*gradients):
    found = [nn.Parameter(torch.zeros(len(gradient))) for gradient in gradients]
    for parameter, gradient in zip(found, gradients, strict=True):
        parameter.grad = torch.tensor(gradient)
    return [*found, nn.Parameter(torch.zeros(2))]  # and one without a gradient


def test_the_norm_is_that_of_all_gradients_as_one_vector():
    assert gradient_norm(parameters([3.0], [0.0, 4.0])) == 5
    assert gradient_norm([nn.Parameter(torch.zeros(2))]) == 0


def test_the_norm_of_each_group_is_that_of_its_parameters_alone():
    head, tail, bias = ({"params": parameters(gradient)} for gradient in ([3.0, 4.0], [12.0], [5.0]))
    named = [{**head, "name": "head"}, {**tail, "name": "tail/matrices"}, {**bias, "name": "tail/vectors"}]
    assert grad_norm_per_group(named) == {"head": 5, "tail": 13}
    assert grad_norm_per_group([head, tail]) == {"0": 5, "1": 12}
    assert grad_norm_per_group([head]) == {}, "it is the whole"


def test_clipping_by_value_bounds_each_element():
    clipped = parameters([3.0, -0.5], [0.0, -4.0])
    clip_values(clipped, 1.0)
    assert [p.grad.tolist() for p in clipped[:2]] == [[1.0, -0.5], [0.0, -1.0]]


@pytest.mark.parametrize("broken", [math.nan, math.inf, -math.inf])
def test_one_element_that_is_not_finite_shows(broken):
    assert not gradient_norm(parameters([3.0], [0.0, broken])).isfinite()


def groups(network):
    """The first layer, and the rest."""
    first, *rest = network.children()
    rest = [parameter for part in rest for parameter in part.parameters()]
    return [{"params": list(first.parameters()), "name": "first"}, {"params": rest, "name": "rest"}]


def shard_and_compare(rank, rendezvous):
    """On each of two ranks the norm of shards equals the norm of the whole, and clipping by it reaches the limit."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=2)
    network, inputs = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 3)), torch.randn(2, 4, 8)
    for tensor in (*network.state_dict().values(), inputs):
        torch.distributed.broadcast(tensor, src=0)
    sharded = fully_shard(deepcopy(network), mesh=init_device_mesh("cpu", (2,)))
    (network(inputs).square().sum() / 2).backward()
    whole, parts = gradient_norm(network.parameters()), grad_norm_per_group(groups(network))
    sharded(inputs[rank]).square().sum().backward()
    trained = list(sharded.parameters())
    norm = gradient_norm(trained)
    torch.testing.assert_close(norm, whole)
    torch.testing.assert_close(grad_norm_per_group(groups(sharded)), parts)
    torch.nn.utils.clip_grads_with_norm_(trained, 0.5, norm)
    torch.testing.assert_close(gradient_norm(trained), torch.tensor(0.5))
    rows, _ = parameters([3.0, -4.0])  # of a table that is divided by rows, which are no DTensor
    expected = [gradient.clamp(-0.01, 0.01) for gradient in local_shards(p.grad for p in trained)]
    clip_values([*trained, rows], 0.01)
    torch.testing.assert_close(local_shards(p.grad for p in trained), expected)
    assert rows.grad.tolist() == pytest.approx([0.01, -0.01])
    torch.distributed.destroy_process_group()


@pytest.mark.slow
@pytest.mark.distributed
def test_the_norm_of_shards_is_that_of_the_whole(tmp_path):
    torch.multiprocessing.spawn(shard_and_compare, (str(tmp_path / "rendezvous"),), nprocs=2)

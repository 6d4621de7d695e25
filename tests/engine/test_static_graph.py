"""A step that leaves out what the first one used is noticed before anybody makes it."""

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from engine.static_graph import StaticGraph


class Branched(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk, self.branch, self.never = nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2)

    def forward(self, rows, branch):
        return self.trunk(rows).sum() + (self.branch(rows).sum() if branch else 0)


@pytest.fixture
def alone():
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def test_what_the_first_pass_used_is_asked_of_those_that_are_exchanged(alone):
    ddp = DistributedDataParallel(Branched(), static_graph=True)
    graph = StaticGraph(ddp)

    def backward(branch, exchanged=True):
        ddp.require_backward_grad_sync = exchanged
        ddp(torch.ones(1, 2), branch).backward()
        graph.after_backward(exchanged)

    backward(True, exchanged=False)  # DDP learns in it all the same
    backward(True)
    backward(False, exchanged=False)
    backward(True)
    with pytest.raises(RuntimeError, match="left out what the first one used: branch.bias, branch.weight"):
        backward(False)
    graph.close()
    graph.after_backward(exchanged=False)
    assert not any(parameter._post_accumulate_grad_hooks for parameter in ddp.parameters())

"""A rank that saves the gradients of first and later steps: `python -m tests.engine.distributed.reduced_steps`."""

import sys
from copy import deepcopy

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
    # DDP's must not be the last reference to a group: its destructor waits for gloo's threads with the GIL held,
    # and such a thread may need the GIL to free the last all-reduce.
    del model, models
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    rank, folder, compression = sys.argv[1:]
    measure(int(rank), folder, {"none": None, "bfloat16": torch.bfloat16}[compression])

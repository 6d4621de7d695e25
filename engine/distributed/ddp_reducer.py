"""Averages local gradients with DDP's own reducer, in the buckets of all later steps."""

import torch
from lightning.pytorch.overrides.distributed import prepare_for_backward
from torch import Tensor
from torch.nn import Parameter
from torch.nn.parallel import DistributedDataParallel


def reduce_local_gradients(ddp: DistributedDataParallel) -> None:
    """Replace each gradient by its mean over the ranks, to the bit as a step of DDP does. A collective.

    A ring adds the terms of an element in an order that depends on its place in a bucket. DDP fills its buckets again
    after its first backward pass, by the order in which gradients were ready. So on three and more ranks the first
    steps of a resumed run would add in another order than the same steps of a run that was not stopped. Here the first
    backward pass has zeros, in the reverse order of registration, which is the same in every start.

    Args:
        ddp: model whose backward passes have not been synchronized yet. A missing gradient counts as zeros.
    """
    trained = [
        parameter
        for name, parameter in ddp.module.named_parameters()
        if parameter.requires_grad and name not in ddp.parameters_to_ignore
    ][::-1]
    gradients = [torch.zeros_like(weight) if weight.grad is None else weight.grad for weight in trained]
    ddp.require_backward_grad_sync = True
    # The first pass makes DDP rebuild its buckets; the second reduces in the buckets of all later steps.
    _backward(ddp, trained, None)
    _backward(ddp, trained, gradients)


def _backward(ddp: DistributedDataParallel, parameters: list[Parameter], gradients: list[Tensor] | None) -> None:
    """Pass gradients, by default zeros, to the reducer as a backward pass does: parameter by parameter."""
    prepare_for_backward(ddp, None)
    for index, parameter in enumerate(parameters):
        parameter.grad = None
        # A leaf's backward triggers the hook by which the reducer learns that its gradient is ready.
        parameter.backward(torch.zeros_like(parameter) if gradients is None else gradients[index])

"""Averages gradients in a 16-bit format, as a DDP communication hook.

PyTorch's own hooks (torch.distributed.algorithms.ddp_comm_hooks.default_hooks) refuse bfloat16 over gloo, which can sum
it, and round twice if the world size is not a power of two.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel


def compress_gradients(ddp: DistributedDataParallel, dtype: torch.dtype) -> None:
    """Make DDP all-reduce its gradient buckets in `dtype`."""
    ddp.register_comm_hook(ddp.process_group, _hook(dtype))


def all_reduce_mean(dtype: torch.dtype, gradient: Tensor, group: "torch.distributed.ProcessGroup") -> Future[Tensor]:
    """Replace `gradient` by its mean over the ranks of `group`, rounded to `dtype` and summed in it.

    The division comes before the sum, so that the sum has the magnitude of one rank's gradient and does not overflow.
    All ranks get bit-identical results, because each rounds only its own addend.

    Args:
        dtype: 16-bit floating-point type that is sent.
        gradient: flat bucket of gradients, changed in place.
        group: ranks that average.

    Returns:
        Future of `gradient`, which DDP waits for before the optimizer step.
    """
    # `div_` changes the bucket itself, which the result overwrites below.
    addend = gradient.div_(group.size()).to(dtype)
    work = torch.distributed.all_reduce(addend, group=group, async_op=True)
    assert work is not None
    # DDP waits for the future, so the all-reduce overlaps with the rest of the backward pass.
    return work.get_future().then(lambda done: gradient.copy_(done.value()[0]))


def _hook(dtype: torch.dtype) -> Callable[..., Future[Tensor]]:
    def compressed_mean(
        group: torch.distributed.ProcessGroup, bucket: torch.distributed.GradBucket
    ) -> Future[Tensor]:  # builds of torch without torch.distributed lack these types, and never call this function
        return all_reduce_mean(dtype, bucket.buffer(), group)

    return compressed_mean

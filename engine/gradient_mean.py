"""The mean of the processes' gradients, sent over the network in 16 bits.

PyTorch's own hooks of this kind (torch.distributed.algorithms.ddp_comm_hooks.default_hooks) refuse bfloat16 over gloo,
which adds it like any other format, and round twice where the number of processes is no power of two.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

_SENT_AS = "gradients_are_sent_as"


def send_as(ddp: DistributedDataParallel, sent_as: torch.dtype) -> None:
    """From now on DDP sends its buckets in this format."""
    ddp.register_comm_hook(ddp.process_group, _hook_of(sent_as))
    setattr(ddp, _SENT_AS, sent_as)


def sent_format(ddp: nn.Module) -> torch.dtype | None:
    """What `send_as` was told; None for gradients that are sent as they are."""
    return getattr(ddp, _SENT_AS, None)


def mean_in(sent_as: torch.dtype, gradient: Tensor, group: "torch.distributed.ProcessGroup") -> Future[Tensor]:
    """`gradient` becomes, in place, its mean over the processes of `group`: rounded to `sent_as`, summed in it.

    Divided first, so that the sum is of the size of one process's gradient. All processes get the same bits: each
    rounds its own part, and all receive one sum.
    """
    sent = gradient.div_(group.size()).to(sent_as)
    summed = torch.distributed.all_reduce(sent, group=group, async_op=True)
    assert summed is not None
    return summed.get_future().then(lambda done: gradient.copy_(done.value()[0]))


def _hook_of(sent_as: torch.dtype) -> Callable[..., Future[Tensor]]:
    def rounded_mean(
        group: torch.distributed.ProcessGroup, bucket: torch.distributed.GradBucket
    ) -> Future[Tensor]:  # builds of torch without processes do not have the types, and do not come here
        return mean_in(sent_as, bucket.buffer(), group)

    return rounded_mean

"""Wraps operations on tensors for which torch has no public name."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode


def copy_module_versions(source: dict[str, Tensor], target: dict[str, Tensor]) -> None:
    """Copy the versions of the modules in a state dict, which torch keeps in a private attribute of it."""
    if hasattr(source, "_metadata"):
        target._metadata = source._metadata  # type: ignore[attr-defined]  # torch adds it.


def multiply_all(tensors: list[Tensor], factor: Tensor) -> None:
    """Multiply tensors in place by a scalar in one kernel; torch's multi-tensor functions have no public names."""
    torch._foreach_mul_(tensors, factor)


def copy_all(targets: list[Tensor], sources: list[Tensor]) -> None:
    """Copy tensors in place in one kernel; see `multiply_all`."""
    torch._foreach_copy_(targets, sources)


def unscales_gradients(optimizer: object) -> bool:
    """Return whether a (fused) optimizer unscales fp16 gradients itself, which torch states in a private attribute."""
    return bool(getattr(optimizer, "_step_supports_amp_scaling", False))


def whole_graphs() -> AbstractContextManager[Any]:
    """Return a context in which torch compiles one graph under DDP, too.

    By default torch cuts a graph where DDP's buckets end, and refuses graphs with autograd functions. The setting has
    no public name.
    """
    from torch._dynamo import config  # takes a second

    return config.patch(optimize_ddp=False)


# -- tensors without values --------------------------------------------------------------------------------------------

DispatchMode = TorchDispatchMode
"""Base class of a context that sees each operation on tensors; torch documents it and has it in a private module."""


def without_values() -> AbstractContextManager[Any]:
    """Return a context in which tensors have shapes, formats and storages, and take no memory.

    Tensors on the device `meta` have these as well, but attention has no fused kernel there. `FakeTensorMode` has no
    public name.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode

    # Tensors from outside of the context, such as constants, may take part in its operations.
    return FakeTensorMode(allow_non_fake_inputs=True)


@contextmanager
def simulated_ranks(number: int) -> Iterator[None]:
    """Make this process rank 0 of a process group whose other ranks do not exist, and which transfers nothing.

    torch has the backend in its package, without a public name for its store.
    """
    from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=number)
    try:
        yield
    finally:
        torch.distributed.destroy_process_group()

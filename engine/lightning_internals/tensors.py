"""Wraps operations on tensors for which torch has no public name."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from typing_extensions import override


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


class ValuedIntegers(DispatchMode):
    """Context inside `without_values` in which integers, masks and small constants have values.

    Models compute the shapes of later tensors from such values: the places of images, the lengths of windows. An
    operation is computed if none of its inputs lacks values. Where a mask selects among numbers without values, the
    number of its true elements gives the shape of the result. FakeTensorMode has no public setting for either.
    """

    _MAX_CONSTANT = 1 << 16
    """Largest number of elements of a floating-point tensor that is made with values."""

    @override
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily

        kwargs = kwargs or {}
        inputs = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        if any(isinstance(each, FakeTensor) for each in inputs):
            if func.overloadpacket in _INDEXED:
                args = (args[0], _numbers_of(args[1]), *args[2:])
            return func(*args, **kwargs)
        if not inputs:  # makes a tensor
            made = func(*args, **kwargs)
            if isinstance(made, Tensor) and made.is_floating_point() and made.numel() > self._MAX_CONSTANT:
                return made
        with unset_fake_temporarily():
            return func(*args, **kwargs)


_INDEXED = (torch.ops.aten.index, torch.ops.aten.index_put, torch.ops.aten.index_put_, torch.ops.aten._index_put_impl_)


def _numbers_of(indices: list[Tensor | None]) -> list[Tensor | None]:
    """Return indices with the masks that have values replaced by numbers without values, as many as they select."""
    from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily

    replaced: list[Tensor | None] = []
    for index in indices:
        if index is None or index.dtype != torch.bool or isinstance(index, FakeTensor):
            replaced.append(index)
            continue
        with unset_fake_temporarily():
            number = int(index.sum())
        replaced += [torch.empty(number, dtype=torch.long) for _ in range(index.ndim)]
    return replaced


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

"""Counts where a training step would wait for an accelerator, in a training on the CPU.

Copies by `Tensor.to` are not counted, because they copy nothing on a CPU; tests/gpu/test_device_waits.py counts them.
"""

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from engine.lightning_internals.training_loop import is_last_micro_batch
from tests.conftest import REPOSITORY

_READS = {
    "aten::_local_scalar_dense",  # item, int, float, bool
    "aten::nonzero",
    "aten::masked_select",
    "aten::_unique2",
    "aten::unique_consecutive",
    "aten::unique_dim",
    "aten::bincount",
    "aten::equal",
}
"""Operations whose result the host needs, or whose shape depends on values."""

_BY_MASK = {"aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_"}
"""They search for the true elements if an index is a mask."""

_COPIES = {Tensor.tolist, Tensor.cpu, Tensor.numpy}
_MAKERS = {torch.tensor, torch.as_tensor, Tensor.new_tensor}

HOST_CODE = ("torch/optim/", "engine/distributed/device_numbers.py", "recommender/networks/dropout_keys.py")
"""Code whose reads are not counted. torch's optimizers keep their step counts on the host, `copy_to_device` queues its
copy, and keys of dropout are computed on a CPU only (on a GPU torch draws the masks)."""


class _Operations(TorchDispatchMode):
    """Counts operations that wait, those of a backward pass included."""

    def __init__(self, waits: Counter[str]) -> None:
        super().__init__()
        self._waits = waits

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        name = func.name().split(".")[0]
        waits = name in _READS
        if name in _BY_MASK:
            waits = any(isinstance(index, Tensor) and index.dtype == torch.bool for index in args[1])
        if name == "aten::repeat_interleave":  # the form that computes the size of its result
            waits = (kwargs or {}).get("output_size") is None
        if waits:
            _count(self._waits)
        return func(*args, **(kwargs or {}))


class _Functions(TorchFunctionMode):
    """Counts functions that copy between host and device and wait for the copy; they are no operations on a CPU."""

    def __init__(self, waits: Counter[str]) -> None:
        super().__init__()
        self._waits = waits

    def __torch_function__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        made = func in _MAKERS and ("device" in kwargs or func is Tensor.new_tensor)
        # What is a tensor already is on its device.
        if func in _COPIES or (made and not isinstance(args[-1], Tensor)):
            _count(self._waits)
        return func(*args, **kwargs)


class DeviceWaits(Callback):
    """Counts the waits of each optimizer step by the function that waits, as `{path:function: number}`."""

    def __init__(self) -> None:
        self.steps: list[Counter[str]] = []
        self._modes: list[Any] = []

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        if not self._modes:
            self.steps.append(Counter())
            self._modes = [_Functions(self.steps[-1]), _Operations(self.steps[-1])]
            for mode in self._modes:
                mode.__enter__()

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *rest: Any) -> None:
        if is_last_micro_batch(trainer):
            for mode in reversed(self._modes):
                mode.__exit__(None, None, None)
            self._modes = []


def _count(waits: Counter[str]) -> None:
    """Count a wait at the innermost function of the repository, unless the innermost code is the host's."""
    frame = sys._getframe(2)
    while frame is not None:
        path = frame.f_code.co_filename
        if any(host in path for host in HOST_CODE):
            return
        if path.startswith(str(REPOSITORY)) and "/.venv/" not in path and path != __file__:
            waits[f"{path[len(str(REPOSITORY)) + 1 :]}:{frame.f_code.co_name}"] += 1
            return
        frame = frame.f_back
    waits["elsewhere"] += 1

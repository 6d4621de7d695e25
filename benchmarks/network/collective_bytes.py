r"""Counts the bytes that the collectives of a training step move, in a real run.

A callback of Lightning for any strategy with a process group, on gloo or NCCL:

    torchrun --nproc_per_node 4 train.py fit --config configs/vision_language/quickstart_pretrain.yaml \
        --config configs/overlays/tensor_parallel.yaml --trainer.accelerator cpu --trainer.precision 32-true \
        --trainer.max_steps 3 --trainer.callbacks+ benchmarks.network.collective_bytes.CollectiveBytes

It writes collective_bytes.json into the run's folder. Collectives of the engine (loss, counters) are included.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from typing_extensions import override

from engine.lightning_internals.training_loop import is_last_micro_batch


class _Counted(TorchDispatchMode):
    """Adds up the bytes of each collective's largest argument or result: the whole of what its ranks share.

    A ring sends (n-1)/n of it for a gather or a scatter among n ranks, twice as much for an all-reduce. The calls of
    FSDP and of the engine are `c10d::...`, those of tensor parallelism `_c10d_functional::...`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.bytes: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()

    @override
    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented  # it calls collectives, which come here then
        result = func(*args, **(kwargs or {}))
        name = func.name()
        if name.startswith(("c10d::", "_c10d_functional::")) and not name.endswith(("wait_tensor", "autograd")):
            # The result of a gather is the whole tensor; of a scatter the argument is.
            size = max(_bytes_of(value) for value in (*args, result))
            self.bytes[name] += size
            self.calls[name] += size > 0
        return result


class CollectiveBytes(Callback):
    """Counts the collectives from the start of a step's first micro-batch to the end of its optimizer step.

    The first step is not counted: torch sets up its communication in it.
    """

    def __init__(self) -> None:
        self._mode: _Counted | None = None
        self._steps: list[dict[str, dict[str, int]]] = []

    @override
    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        # At the first micro-batch of a step; with accumulation the mode stays on until the last.
        if self._mode is None and trainer.global_step:
            self._mode = _Counted()
            self._mode.__enter__()

    @override
    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        mode = self._mode
        if mode is not None and is_last_micro_batch(trainer):
            mode.__exit__(None, None, None)
            self._mode = None
            counted = sorted(name for name, size in mode.bytes.items() if size)
            self._steps.append({name: {"bytes": mode.bytes[name], "calls": mode.calls[name]} for name in counted})

    @override
    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.is_global_zero:
            path = Path(trainer.default_root_dir) / "collective_bytes.json"
            path.write_text(json.dumps({"ranks": trainer.world_size, "steps": self._steps}, indent=1))


def _bytes_of(value: object) -> int:
    if isinstance(value, Tensor):
        return value.numel() * value.element_size()
    return sum(map(_bytes_of, value)) if isinstance(value, (list, tuple)) else 0

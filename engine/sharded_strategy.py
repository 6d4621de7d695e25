"""FSDP for models that do not fit one GPU, with checkpoints that are whole when they have a name.

Lightning's FSDPStrategy writes shards straight into the folder's final name, over those that are there, and reads a
full checkpoint with plain pickle. What the exact mean needs of FSDP holds: it averages gradients over the processes, as
DDP does, and leaves each process its shard of them, which is multiplied in place.
"""

import logging
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from lightning.pytorch import Trainer
from lightning.pytorch.strategies import FSDPStrategy, ModelParallelStrategy, Strategy
from torch import nn

from engine.checkpoint_file import DamagedCheckpoint, verify, verify_sizes
from engine.checkpoints import DurableCheckpointIO
from engine.durable_file import beside, flush_folder, remove
from engine.manifest import write_manifest
from engine.whole_shape import note_shapes

if TYPE_CHECKING:
    from torch.distributed.fsdp import MixedPrecision

log = logging.getLogger("lockstep")


def is_fsdp(strategy: Strategy) -> bool:
    """Lightning's, or the one here."""
    return isinstance(strategy, FSDPStrategy)


def weights_are_shared(strategy: Strategy) -> bool:
    """Whether each process holds a part of the weights: then all must compute as often, or one waits for ever."""
    return isinstance(strategy, FSDPStrategy | ModelParallelStrategy)


class ShardedStrategy(FSDPStrategy):
    """Weights, gradients and optimizer state in shards, one on each GPU.

    Args:
        state_dict_type: of checkpoints: `sharded` (a folder; each process writes its part) or `full` (one file, which other strategies load as well; gathered by the first process).
        sharding_strategy: what is sharded: `FULL_SHARD` all, `SHARD_GRAD_OP` all but the weights between forward and backward, `HYBRID_SHARD` all within a node, copied between nodes, `NO_SHARD` nothing.
        cpu_offload: keep weights and optimizer state in the machine's memory; the slowest, for models that fit nowhere else.

    The repeated layers of a network (see `repeated_layers`) are gathered one after another, each as it runs. All else,
    such as embeddings and heads, is gathered for the whole of a step: tied weights are used at both ends of it, and
    how often a head is called depends on the samples that a process has, for which no other may wait.
    """  # noqa: E501

    def __init__(
        self,
        state_dict_type: Literal["sharded", "full"] = "sharded",
        sharding_strategy: Literal["FULL_SHARD", "SHARD_GRAD_OP", "HYBRID_SHARD", "NO_SHARD"] = "FULL_SHARD",
        cpu_offload: bool = False,
    ) -> None:
        super().__init__(state_dict_type=state_dict_type, sharding_strategy=sharding_strategy, cpu_offload=cpu_offload)

    @property
    def mixed_precision_config(self) -> "MixedPrecision | None":
        config = super().mixed_precision_config
        # Buffers keep their format: rotary frequencies that are rounded to bf16 are off by whole turns far into a row.
        return None if config is None else replace(config, buffer_dtype=None)

    def _setup_model(self, model: nn.Module) -> nn.Module:
        from torch.distributed.fsdp.wrap import CustomPolicy

        note_shapes(model)
        layers = repeated_layers(model)
        self.kwargs["auto_wrap_policy"] = CustomPolicy(lambda module: module in layers)
        return super()._setup_model(model)

    def setup_environment(self) -> None:
        if self.root_device.type != "cuda":
            raise ValueError(
                f"trainer.strategy is {type(self).__name__}, which shards a model over GPUs, but the accelerator is "
                f"{self.root_device.type}: on CPUs use configs/overlays/ddp_cpu.yaml, or strategy auto"
            )
        super().setup_environment()

    def setup(self, trainer: Trainer) -> None:
        last = [callback for callback in trainer.checkpoint_callbacks if getattr(callback, "keep", 2) < 2]
        if self._state_dict_type == "sharded" and last and trainer.state.fn == "fit":
            # A folder cannot take another's place in one step: for an instant it is there under no name.
            raise ValueError(
                "with sharded checkpoints last_checkpoint.keep and best_checkpoint.keep must be at least 2: only so "
                "is one of them whole at every instant"
            )
        super().setup(trainer)

    def save_checkpoint(
        self, checkpoint: dict[str, Any], filepath: str | Path, storage_options: Any | None = None
    ) -> None:
        """Entered by all processes; see DurableCheckpointIO for what happens when the disk refuses."""
        plugin = self.checkpoint_io
        assert isinstance(plugin, DurableCheckpointIO)
        if self._state_dict_type == "full":
            super().save_checkpoint(checkpoint, filepath, storage_options)
            return
        path = Path(filepath)
        if self.is_global_zero:
            plugin.finish_writing()
        begun = time.monotonic()
        hidden = Path(self.broadcast(str(beside(path))))
        error: Exception | None = None
        try:
            super().save_checkpoint(checkpoint, hidden, storage_options)
        except Exception as raised:  # torch raises it on all processes, or Lightning on the first one
            error = raised
        if self.is_global_zero:
            if error is None:
                plugin.put(path, lambda: _whole(hidden), begun)
            else:
                remove(hidden)
                plugin.note(path, error)
        elif error is not None:
            log.debug("saving %s", path, exc_info=error)

    def load_checkpoint(self, checkpoint_path: str | Path, weights_only: bool | None = None) -> dict[str, Any]:
        """All processes refuse alike what does not verify: Lightning unpickles a full checkpoint without asking."""
        problem = ""
        if self.is_global_zero:
            try:
                verify(Path(checkpoint_path))
            except (DamagedCheckpoint, OSError) as error:
                problem = str(error)
        problem = self.broadcast(problem)
        if problem:
            raise DamagedCheckpoint(f"{problem}. --ckpt_path last takes the newest one of a run that is whole")
        return super().load_checkpoint(checkpoint_path, weights_only=True)


def repeated_layers(model: nn.Module) -> set[nn.Module]:
    """Members of the outermost module lists: every process runs each of them equally often.

    Lists further inside may hold experts, of which a process runs those that its samples are sent to.
    """
    if isinstance(model, nn.ModuleList):
        return {layer for layer in model if any(True for _ in layer.parameters())}
    return {layer for child in model.children() for layer in repeated_layers(child)}


def _whole(folder: Path) -> Path:
    try:
        verify_sizes(folder)
        write_manifest(folder)  # reads the shards through, once
        flush_folder(folder)
    except BaseException:
        remove(folder)
        raise
    return folder

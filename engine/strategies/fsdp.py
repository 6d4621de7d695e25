"""FSDP for models that do not fit one GPU, with verified checkpoints.

Lightning's FSDPStrategy overwrites the shards of an existing checkpoint in place, and reads a full checkpoint with
plain pickle. GlobalLossMean works with FSDP: like DDP it averages gradients over the ranks, and each rank multiplies
its shard of them in place.
"""

import logging
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from lightning.pytorch import Trainer
from lightning.pytorch.strategies import FSDPStrategy, ModelParallelStrategy, Strategy
from torch import nn
from typing_extensions import override

from engine.checkpointing.checkpoint_io import VerifiedCheckpointIO
from engine.checkpointing.compatibility import require_lightning
from engine.checkpointing.content_rules import require_structure
from engine.checkpointing.shard_manifest import write_manifest
from engine.checkpointing.verification import CorruptCheckpointError, load_lazily, verify, verify_sizes
from engine.distributed.unsharded_shape import record_unsharded_shapes
from engine.io.atomic_file import flush_folder, remove, temp_path

if TYPE_CHECKING:
    from torch.distributed.fsdp import MixedPrecision

log = logging.getLogger("lockstep")


def is_fsdp(strategy: Strategy) -> bool:
    """Return whether the strategy is Lightning's FSDPStrategy or a subclass."""
    return isinstance(strategy, FSDPStrategy)


def has_sharded_weights(strategy: object) -> bool:
    """Return whether each rank holds a shard of the weights, so that all ranks must run equally many passes."""
    return isinstance(strategy, FSDPStrategy | ModelParallelStrategy)


class VerifiedFSDPStrategy(FSDPStrategy):
    """FSDPStrategy with verified checkpoints: weights, gradients and optimizer state are sharded over the GPUs.

    The repeated layers of a network (see `repeated_layers`) are gathered one at a time, when they run. All other
    weights, such as embeddings and heads, are gathered for the whole step: tied weights are used at both ends of the
    network, and the number of calls of a head may differ between ranks, which would otherwise wait for each other.

    Args:
        state_dict_type: form of checkpoints: `sharded` (a folder; each rank writes its shard) or `full` (one file that
            other strategies load too; gathered by rank 0).
        sharding_strategy: `FULL_SHARD` shards all, `SHARD_GRAD_OP` all but the weights between forward and backward
            pass, `HYBRID_SHARD` all within a node with replicas between nodes, `NO_SHARD` nothing.
        cpu_offload: keep weights and optimizer state in host memory; the slowest, for models that do not fit otherwise.
    """

    def __init__(
        self,
        state_dict_type: Literal["sharded", "full"] = "sharded",
        sharding_strategy: Literal["FULL_SHARD", "SHARD_GRAD_OP", "HYBRID_SHARD", "NO_SHARD"] = "FULL_SHARD",
        cpu_offload: bool = False,
    ) -> None:
        super().__init__(state_dict_type=state_dict_type, sharding_strategy=sharding_strategy, cpu_offload=cpu_offload)

    @property
    @override
    def mixed_precision_config(self) -> "MixedPrecision | None":
        config = super().mixed_precision_config
        # Buffers keep their dtype: rotary frequencies rounded to bf16 are wrong by full turns at large positions.
        return None if config is None else replace(config, buffer_dtype=None)

    def _setup_model(self, model: nn.Module) -> nn.Module:
        from torch.distributed.fsdp.wrap import CustomPolicy

        record_unsharded_shapes(model)
        layers = repeated_layers(model)
        self.kwargs["auto_wrap_policy"] = CustomPolicy(lambda module: module in layers)
        return super()._setup_model(model)

    @override
    def setup_environment(self) -> None:
        if self.root_device.type != "cuda":
            raise ValueError(
                f"trainer.strategy is {type(self).__name__}, which shards a model over GPUs, but the accelerator is "
                f"{self.root_device.type}: on CPUs use configs/overlays/ddp_cpu.yaml, or strategy auto"
            )
        super().setup_environment()

    @override
    def setup(self, trainer: Trainer) -> None:
        last = [callback for callback in trainer.checkpoint_callbacks if getattr(callback, "keep", 2) < 2]
        if self._state_dict_type == "sharded" and last and trainer.state.fn == "fit":
            # A folder cannot replace another atomically: for an instant there is none of that name.
            raise ValueError(
                "with sharded checkpoints last_checkpoint.keep and best_checkpoint.keep must be at least 2, so that a "
                "complete one exists at every time"
            )
        super().setup(trainer)

    def save_checkpoint(
        self, checkpoint: dict[str, Any], filepath: str | Path, storage_options: Any | None = None
    ) -> None:
        """Save a checkpoint, on all ranks. VerifiedCheckpointIO documents what happens if writing fails."""
        plugin = self.checkpoint_io
        assert isinstance(plugin, VerifiedCheckpointIO)
        if self._state_dict_type == "full":
            super().save_checkpoint(checkpoint, filepath, storage_options)
            return
        path = Path(filepath)
        if self.is_global_zero:
            plugin.finish_writing()
        begun = time.monotonic()
        temporary = Path(self.broadcast(str(temp_path(path))))
        error: Exception | None = None
        try:
            super().save_checkpoint(checkpoint, temporary, storage_options)
        except Exception as raised:  # torch raises on all ranks, Lightning on rank 0 alone
            error = raised
        if self.is_global_zero:
            if error is None:
                plugin.commit(path, lambda: _verified(temporary), begun)
            else:
                remove(temporary)
                plugin.record_failure(path, error)
        elif error is not None:
            log.debug("saving %s", path, exc_info=error)

    def load_checkpoint(self, checkpoint_path: str | Path, weights_only: bool | None = None) -> dict[str, Any]:
        """Load a verified checkpoint; all ranks raise if it is corrupt. Lightning would unpickle it unverified."""
        path, problem = Path(checkpoint_path), ""
        if self.is_global_zero:
            try:
                verify(path)
                content = load_lazily(path)
                # The weights of a sharded checkpoint are in its shards.
                require_lightning({"state_dict": {}, **content} if path.is_dir() else content, path)
                require_structure(content, path)
            except (ValueError, OSError) as error:  # a corrupt checkpoint is a ValueError, too
                problem = str(error)
        problem = self.broadcast(problem)
        if problem:
            raise CorruptCheckpointError(f"{problem}. --ckpt_path last uses the newest intact checkpoint of a run")
        return super().load_checkpoint(checkpoint_path, weights_only=True)


def repeated_layers(model: nn.Module) -> set[nn.Module]:
    """Return the members of the outermost module lists, which every rank runs equally often.

    Inner lists may hold experts, which only run for the samples that are routed to them.
    """
    if isinstance(model, nn.ModuleList):
        return {layer for layer in model if any(True for _ in layer.parameters())}
    return {layer for child in model.children() for layer in repeated_layers(child)}


def _verified(folder: Path) -> Path:
    try:
        verify_sizes(folder)
        write_manifest(folder)  # reads all shards once
        flush_folder(folder)
    except BaseException:
        remove(folder)
        raise
    return folder

"""Checkpoints of the trainable weights alone, which a run writes with `checkpoints.trainable_only`."""

from lightning.pytorch import LightningModule
from torch import nn

from engine.checkpointing.checkpoint_io import VerifiedCheckpointIO
from engine.checkpointing.frozen_weights import frozen_fingerprints, strip_frozen


class FrozenWeights:
    """Hashes of a module's frozen weights, which its checkpoints omit with `checkpoints.trainable_only`."""

    def __init__(self) -> None:
        self._hashes: dict[str, int] | None = None

    @property
    def recorded(self) -> bool:
        """Whether `record` has found that the checkpoints omit frozen weights."""
        return self._hashes is not None

    def record(self, module: LightningModule) -> None:
        """Record the hashes of the module's frozen weights, if the checkpoints of its run omit them."""
        # Strategies that restore after setup shard the weights and load them without the module's hooks.
        strategy, storage = module.trainer.strategy, module.trainer.strategy.checkpoint_io
        trainable_only = isinstance(storage, VerifiedCheckpointIO) and storage.trainable_only
        if trainable_only and not strategy.restore_checkpoint_after_setup:
            self._hashes = frozen_fingerprints(module)

    def strip(self, module: nn.Module, checkpoint: dict[str, object]) -> None:
        """Omit the frozen weights that are unchanged since `record` from a checkpoint, in place."""
        if self._hashes is not None:
            strip_frozen(module, checkpoint, self._hashes)

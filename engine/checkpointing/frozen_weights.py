"""Omits frozen weights from checkpoints and restores them from the model when a checkpoint is loaded.

A pretrained language model that is never trained need not be written again with each checkpoint. A frozen weight is
omitted only if its hash is unchanged since construction: a weight that was trained and frozen afterwards is saved.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn

from engine.determinism.tensor_hash import hash_tensor
from engine.io.name_list import join_names
from engine.lightning_internals.tensors import copy_module_versions
from engine.optim.row_table import is_trained

FROZEN_KEY = "frozen"
"""Checkpoint key: {name of an omitted parameter: its hash}."""


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
        strategy = module.trainer.strategy
        trainable_only = getattr(strategy.checkpoint_io, "trainable_only", False)
        if trainable_only and not strategy.restore_checkpoint_after_setup:
            self._hashes = frozen_fingerprints(module)

    def strip(self, module: nn.Module, checkpoint: dict[str, object]) -> None:
        """Omit the frozen weights that are unchanged since `record` from a checkpoint, in place."""
        if self._hashes is not None:
            strip_frozen(module, checkpoint, self._hashes)


def frozen_fingerprints(module: nn.Module) -> dict[str, int]:
    """Return {name: hash} of all parameters that a training does not change."""
    # `remove_duplicate=False`: the state dict has a tied weight under each of its names.
    frozen = {name: p for name, p in module.named_parameters(remove_duplicate=False) if not is_trained(p)}
    return _fingerprints(frozen)


def strip_frozen(module: nn.Module, checkpoint: dict[str, Any], built: dict[str, int]) -> None:
    """Remove unchanged frozen weights from a checkpoint, in place, and record their hashes in it.

    Args:
        module: module that the checkpoint is of.
        checkpoint: a Lightning checkpoint.
        built: `frozen_fingerprints` of the module after its construction.
    """
    # Hash again: code outside of the optimizer may have changed a weight since it was built.
    current = frozen_fingerprints(module)
    checkpoint[FROZEN_KEY] = {name: value for name, value in current.items() if built.get(name) == value}
    checkpoint["state_dict"] = _without(checkpoint["state_dict"], checkpoint[FROZEN_KEY])


def restore_frozen(module: nn.Module, checkpoint: dict[str, Any]) -> None:
    """Add the module's own frozen weights to a checkpoint, in place, so that it can be loaded strictly.

    Raises:
        ValueError: the checkpoint was trained with other frozen weights.
    """
    if "state_dict" not in checkpoint:  # a sharded strategy has loaded the weights itself, strictly
        return
    module_weights = require_frozen(module, checkpoint.get(FROZEN_KEY, {}))
    for name, weight in module_weights.items():
        checkpoint["state_dict"][name] = weight


def require_frozen(
    module: nn.Module, recorded: Mapping[str, int], whole: Callable[[Tensor], Tensor] | None = None
) -> dict[str, Tensor]:
    """Return the module's own weights that a checkpoint omits.

    Args:
        module: module that the checkpoint is loaded into.
        recorded: content of `FROZEN_KEY`: {name: hash}.
        whole: gathers a weight of which this rank holds a shard.

    Raises:
        ValueError: the checkpoint was trained with another value of a weight.
    """
    parameters = dict(module.named_parameters(remove_duplicate=False))
    module_weights = {name: parameters[name].detach() for name in recorded if name in parameters}
    fingerprints = _fingerprints(
        module_weights if whole is None else {name: whole(weight) for name, weight in module_weights.items()}
    )
    different = [name for name, value in recorded.items() if fingerprints.get(name) != value]
    if different:
        absent = [name for name in different if name not in module_weights]
        raise ValueError(
            f"the checkpoint omits {len(recorded)} frozen weights. "
            + (
                f"This model lacks {join_names(absent, 3)}"
                if absent
                else f"They differ here: {join_names(different, 3)}"
            )
            + ". Build the model from the same pretrained weights, in the same precision, as in training "
            "(--checkpoints.trainable_only false in training stores them as well)"
        )
    return module_weights


def _fingerprints(tensors: Mapping[str, Tensor]) -> dict[str, int]:
    if not tensors:
        return {}
    hashes = [hash_tensor(tensor) for tensor in tensors.values()]
    # A single transfer to the host for all hashes, which may be on several devices.
    device = hashes[0].device
    return dict(zip(tensors, torch.stack([value.to(device) for value in hashes]).tolist(), strict=True))


def _without(state_dict: dict[str, Tensor], names: dict[str, int]) -> dict[str, Tensor]:
    stripped = state_dict.copy()
    copy_module_versions(state_dict, stripped)
    for name in names:
        stripped.pop(name, None)
    return stripped

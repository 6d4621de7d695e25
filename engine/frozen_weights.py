"""Leaves frozen weights out of checkpoints, and makes sure that they are the same ones when a checkpoint is loaded.

A language model that is read from its own files and never trained need not be written again every few minutes. What
stays out is told by value: a weight that was trained and frozen afterwards differs from what was built, and is saved.
"""

from typing import Any

import torch
from torch import Tensor, nn

from engine.fingerprint import fingerprint

KEY = "frozen"
"""Key of a checkpoint: {name of a parameter that was left out: its fingerprint}."""


def frozen_fingerprints(module: nn.Module) -> dict[str, int]:
    """{name: fingerprint} of the parameters that are not trained."""
    frozen = {name: p for name, p in module.named_parameters(remove_duplicate=False) if not p.requires_grad}
    return _fingerprints(frozen)


def leave_out_frozen(module: nn.Module, checkpoint: dict[str, Any], built: dict[str, int]) -> None:
    """Takes out of the checkpoint what is frozen and still has the fingerprint that it was `built` with."""
    now = frozen_fingerprints(module)
    checkpoint[KEY] = {name: figure for name, figure in now.items() if built.get(name) == figure}
    checkpoint["state_dict"] = _without(checkpoint["state_dict"], checkpoint[KEY])


def put_back_frozen(module: nn.Module, checkpoint: dict[str, Any]) -> None:
    """Completes the checkpoint with the module's own frozen weights, so that it can be loaded strictly.

    Raises:
        ValueError: they are not those that the checkpoint was trained with; names where they differ.
    """
    if "state_dict" not in checkpoint:  # the strategy has loaded the weights by itself, and strictly
        return
    recorded = checkpoint.get(KEY, {})
    own = dict(module.named_parameters(remove_duplicate=False))
    found = _fingerprints({name: own[name] for name in recorded if name in own})
    differ = [name for name, figure in recorded.items() if found.get(name) != figure]
    if differ:
        absent = [name for name in differ if name not in own]
        raise ValueError(
            f"the checkpoint leaves out {len(recorded)} frozen weights, of which "
            + (f"this model does not have {_places(absent)}" if absent else f"this model has others: {_places(differ)}")
            + ". Build the model from the same pretrained weights, in the same precision, as when it was trained "
            "(--checkpoints.trainable_only false at training stores them as well)"
        )
    for name in recorded:
        checkpoint["state_dict"][name] = own[name].detach()


def _fingerprints(tensors: dict[str, Tensor]) -> dict[str, int]:
    if not tensors:
        return {}
    figures = [fingerprint(tensor) for tensor in tensors.values()]
    # One transfer for all of them; they may lie on several devices.
    device = figures[0].device
    return dict(zip(tensors, torch.stack([figure.to(device) for figure in figures]).tolist(), strict=True))


def _without(state_dict: dict[str, Tensor], names: dict[str, int]) -> dict[str, Tensor]:
    kept = state_dict.copy()  # with the versions of its modules, which an OrderedDict carries as an attribute
    if hasattr(state_dict, "_metadata"):
        kept._metadata = state_dict._metadata  # type: ignore[attr-defined]
    for name in names:
        kept.pop(name, None)
    return kept


def _places(names: list[str]) -> str:
    shown = ", ".join(names[:3])
    return shown + (f" and {len(names) - 3} more" if len(names) > 3 else "")

"""Initializes a training stage with the weights of an earlier stage.

Every weight of the checkpoint and of the model must match by name, but for new adapters and optional weights. Frozen
weights, which the checkpoint omits, must be equal to those that this model is built from. Weights that are quantized
here, and were not in the earlier stage, are quantized when they are loaded.
"""

import logging
import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from engine.checkpointing.checkpoint_schema import require_structure
from engine.checkpointing.frozen_weights import FROZEN_KEY
from engine.checkpointing.verification import load_lazily
from engine.determinism.tensor_hash import hash_tensor
from engine.system.installation import PROGRAM
from lightning_modules.multimodal.checkpoints.base_model_identity import describe_differences
from lightning_modules.multimodal.language.quantization import QuantizedWeight
from lightning_modules.multimodal.language.quantized_linear import QuantizedLinear, quantized_layers

log = logging.getLogger("lockstep")

_MAX_NAMES = 3  # in a message, of each kind
_ADAPTER = ".lora_"


class WeightOrigin(NamedTuple):
    """Source of a part of a model, in the checkpoint and here."""

    saved: Mapping[str, Any]  # identity in the checkpoint
    own: Mapping[str, Any]  # identity in this model
    alike: tuple[str, ...]  # keys whose values must be equal
    weights: Callable[[], str | None]  # hash of this model's files, computed only if needed


class LoadedWeights(NamedTuple):
    """Names of the model's weights."""

    taken: list[str]  # loaded from the checkpoint
    new: list[str]  # initialized here; one name stands for all adapters


def read_stage(path: Path) -> dict[str, Any]:
    """Read the checkpoint of an earlier stage.

    Raises:
        ValueError: a key of the checkpoint holds the wrong kind of value.
    """
    checkpoint = load_lazily(path)
    if path.is_dir():  # sharded; each rank reads all weights, as from a single file
        from engine.checkpointing.sharded.sharded_state import read_full_checkpoint

        checkpoint |= read_full_checkpoint(path, groups=None)
    require_structure(checkpoint, path)
    return checkpoint


def load_stage(
    module: nn.Module,
    path: Path,
    checkpoint: Mapping[str, object],
    origins: Mapping[str, WeightOrigin],
    optional: tuple[str, ...],
) -> None:
    """Load the weights of an earlier stage, and log what was loaded.

    Args:
        module: module whose weights are replaced.
        path: path of the checkpoint.
        checkpoint: content of the checkpoint.
        origins: see `load_stage_weights`.
        optional: see `load_stage_weights`.

    Raises:
        ValueError: the checkpoint does not fit; the module is unchanged.
    """
    try:
        weights = load_stage_weights(module, checkpoint, origins, optional)
    except ValueError as error:
        raise ValueError(f"model.init_args.init_from: {path} does not fit this model: {error}") from error
    log.info("initialized %d weights from %s (step %s)", len(weights.taken), path, checkpoint.get("global_step"))
    if weights.new:
        log.info("newly initialized, not in it: %s", ", ".join(weights.new))


def base_was_trained(module: nn.Module, checkpoint: Mapping[str, Any]) -> bool:
    """Return whether an earlier stage trained language-model weights that are frozen now.

    The files that the language model is loaded from do not contain such weights.
    """
    frozen = (name for name, weight in module.named_parameters() if not weight.requires_grad)
    saved, current = checkpoint.get("state_dict", {}), module.state_dict()
    # A checkpoint holds a frozen weight only if an earlier stage changed it.
    names = [name for name in frozen if name in saved and name.startswith("language_model.")]
    return any(saved[name].shape == current[name].shape and (saved[name] != current[name]).any() for name in names)


def canonical(name: str) -> str:
    """Return a weight's name without the prefixes that peft adds around adapted models and layers."""
    return re.sub(r"\bbase_model\.model\.", "", name, count=1).replace(".base_layer.", ".")


@torch.no_grad()
def load_stage_weights(
    module: nn.Module,
    checkpoint: Mapping[str, Any],
    origins: Mapping[str, WeightOrigin],
    optional: tuple[str, ...] = (),
) -> LoadedWeights:
    """Load the checkpoint's weights into the module.

    Args:
        module: module whose weights are replaced.
        checkpoint: checkpoint of the earlier stage.
        origins: {name prefix of a part: its source}.
        optional: name prefixes of weights that the checkpoint may lack, beside adapters.

    Raises:
        ValueError: weights do not match; the message names them, and the module is unchanged.
    """
    if not isinstance(checkpoint.get("state_dict"), Mapping):
        raise ValueError("it is not a checkpoint of a run: it has no state_dict")
    # Names without peft's prefixes, so that a stage with adapters can follow a stage without.
    current = {canonical(name): weight for name, weight in module.state_dict().items()}
    saved = {canonical(name): weight for name, weight in checkpoint["state_dict"].items()}
    frozen = {canonical(name): fingerprint for name, fingerprint in checkpoint.get(FROZEN_KEY, {}).items()}
    to_quantize = _newly_quantized_layers(module, current, (*saved, *frozen))
    # Identities first: a different architecture explains a hundred weights of other shapes.
    for part, origin in origins.items():
        if problem := describe_differences(origin.saved, origin.own, origin.alike):
            raise ValueError(f"its {part} differs ({origin.saved.get('name')}): {problem}")
    new = [name for name in current if name not in saved and name not in frozen]
    allowed = [name for name in new if _ADAPTER in name or name.startswith(optional)]
    problems = {
        "it lacks": [name for name in new if name not in allowed],
        "this model lacks": [name for name in (*saved, *frozen) if name not in current],
        "of another shape are": [
            f"{name} ({tuple(weight.shape)}, here {tuple(current[name].shape)})"
            for name, weight in saved.items()
            if name in current and weight.shape != current[name].shape
        ],
        "omitted as frozen, and different from this model's, are": _changed_frozen(current, frozen, origins),
    }
    messages = [f"{kind} {_shorten(names)}" for kind, names in problems.items() if names]
    # The likeliest mistake: adapters were trained, and this stage has none.
    if any(_ADAPTER in name for name in problems["this model lacks"]):
        messages.append(
            "to train the adapters further, set the same language_model.lora; to merge them into the model, run "
            f"{PROGRAM} export --merge and set language_model.path to its output"
        )
    # All problems are in one error before the first copy, so that the module stays unchanged.
    if messages:
        raise ValueError("; ".join(messages))
    for name, weight in saved.items():
        if name in to_quantize:
            to_quantize[name].store(weight)
        else:
            # Copied in place: tied weights stay tied, and copy_ casts to the format of this stage.
            current[name].copy_(weight)
    return LoadedWeights(list(saved), sorted({"adapters" if _ADAPTER in name else name for name in allowed}))


def _newly_quantized_layers(
    module: nn.Module, current: dict[str, Tensor], saved_names: Collection[str]
) -> dict[str, QuantizedLinear]:
    """Return the layers that are quantized here and were not in the earlier stage, by the names of their weights.

    In `own` a tensor without values, of the weight's shape, takes the place of the quantized weight.
    """
    layers = {canonical(f"{name}.weight"): layer for name, layer in quantized_layers(module)}
    to_quantize = {name: layer for name, layer in layers.items() if name in saved_names}
    for name, layer in to_quantize.items():
        for key in QuantizedWeight._fields:
            current.pop(name.removesuffix("weight") + key, None)
        current[name] = torch.empty(layer.out_features, layer.in_features, device="meta")
    return to_quantize


def _changed_frozen(
    current: Mapping[str, Tensor], frozen: Mapping[str, int], origins: Mapping[str, WeightOrigin]
) -> list[str]:
    """Return the frozen weights whose values differ.

    A part from the same files is equal, whatever number format it is loaded in. Other parts are compared by value.
    """
    differ = []
    # "" stands for the weights that belong to none of the parts.
    for part in (*origins, ""):
        names = [
            name
            for name in frozen
            if name in current and (name.startswith(part) if part else not name.startswith(tuple(origins)))
        ]
        hashed = origins[part].saved.get("weights") if part else None
        if not names or hashed is not None and hashed == origins[part].weights():
            continue
        differ += [name for name in names if current[name].is_meta or int(hash_tensor(current[name])) != frozen[name]]
    return differ


def _shorten(names: list[str]) -> str:
    more = len(names) - _MAX_NAMES
    return ", ".join(names[:_MAX_NAMES]) + (f" and {more} more" if more > 0 else "")

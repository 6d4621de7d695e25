"""Begins a training with the weights of another one: a later stage goes on with what an earlier one has learnt.

Of the checkpoint's weights each is taken or refused by name, and so is each of the model's that the checkpoint has not.
What it left out because it was frozen must be what this model is built from, too.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from engine.checkpoint_file import head
from engine.fingerprint import fingerprint
from engine.frozen_weights import KEY
from lightning_modules.multimodal.base_identity import differences

_NAMED = 3  # names of each kind that a message has at most
_ADAPTER = ".lora_"


class Origin(NamedTuple):
    """What a part of a model was built from."""

    saved: Mapping[str, Any]  # identity in the checkpoint
    own: Mapping[str, Any]
    alike: tuple[str, ...]  # keys in which both must be the same
    weights: Callable[[], str | None]  # of the own one, hashed only where it is needed


class TakenOver(NamedTuple):
    """What became of the model's weights: their names."""

    taken: list[str]
    new: list[str]  # begin here; of adapters one name for all


def read_stage(path: Path) -> dict[str, Any]:
    """The checkpoint that a stage ended with.

    Raises:
        ValueError: it is in shards.
    """
    if path.is_dir():
        raise ValueError(
            f"model.init_args.init_from: {path} is a sharded checkpoint; only a file can be begun with: train the "
            "earlier stage with trainer.strategy.init_args.state_dict_type full"
        )
    return head(path)


def base_was_trained(module: nn.Module, checkpoint: Mapping[str, Any]) -> bool:
    """Whether an earlier stage has trained what is frozen now of a language model, so that its files lack that."""
    frozen = (name for name, weight in module.named_parameters() if not weight.requires_grad)
    saved, own = checkpoint.get("state_dict", {}), module.state_dict()
    names = [name for name in frozen if name in saved and name.startswith("language_model.")]
    return any(saved[name].shape == own[name].shape and (saved[name] != own[name]).any() for name in names)


def canonical(name: str) -> str:
    """A weight's name with and without adapters around it: peft puts their model and their layers between."""
    return re.sub(r"\bbase_model\.model\.", "", name, count=1).replace(".base_layer.", ".")


@torch.no_grad()
def take_over(
    module: nn.Module, checkpoint: Mapping[str, Any], origins: Mapping[str, Origin], may_be_new: tuple[str, ...] = ()
) -> TakenOver:
    """Puts the checkpoint's weights into the module.

    Args:
        origins: {what the names of a part begin with: what it was built from}.
        may_be_new: beginnings of names that the earlier stage need not have, beside adapters.

    Raises:
        ValueError: names what does not fit; the module is as it was.
    """
    if not isinstance(checkpoint.get("state_dict"), Mapping):
        raise ValueError("it is no checkpoint of a run: it has no state_dict")
    own = {canonical(name): weight for name, weight in module.state_dict().items()}
    saved = {canonical(name): weight for name, weight in checkpoint["state_dict"].items()}
    left_out = {canonical(name): figure for name, figure in checkpoint.get(KEY, {}).items()}
    for part, origin in origins.items():
        if problem := differences(origin.saved, origin.own, origin.alike):
            raise ValueError(f"its {part} is another one ({origin.saved.get('name')}): {problem}")
    new = [name for name in own if name not in saved and name not in left_out]
    allowed = [name for name in new if _ADAPTER in name or name.startswith(may_be_new)]
    problems = {
        "it lacks": [name for name in new if name not in allowed],
        "this model lacks": [name for name in (*saved, *left_out) if name not in own],
        "of another shape are": [
            f"{name} ({tuple(weight.shape)}, here {tuple(own[name].shape)})"
            for name, weight in saved.items()
            if name in own and weight.shape != own[name].shape
        ],
        "left out as frozen, and others than this model's, are": _others(own, left_out, origins),
    }
    said = [f"{kind} {_few(names)}" for kind, names in problems.items() if names]
    if any(_ADAPTER in name for name in problems["this model lacks"]):
        said.append(
            "adapters train on under the same language_model.lora, or become part of the model with "
            "train.py export --merge, to be given as language_model.path"
        )
    if said:
        raise ValueError("; ".join(said))
    for name, weight in saved.items():
        own[name].copy_(weight)
    return TakenOver(list(saved), sorted({"adapters" if _ADAPTER in name else name for name in allowed}))


def _others(own: Mapping[str, Tensor], left_out: Mapping[str, int], origins: Mapping[str, Origin]) -> list[str]:
    """Frozen weights that are not what they were; compared by their files, whose formats do not matter, or by value."""
    differ = []
    for part in (*origins, ""):
        names = [
            name
            for name in left_out
            if name in own and (name.startswith(part) if part else not name.startswith(tuple(origins)))
        ]
        hashed = origins[part].saved.get("weights") if part else None
        if not names or hashed is not None and hashed == origins[part].weights():
            continue
        differ += [name for name in names if int(fingerprint(own[name])) != left_out[name]]
    return differ


def _few(names: list[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")

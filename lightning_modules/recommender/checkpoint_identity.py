"""What a checkpoint of the recommender belongs to: items and architecture; others are refused before they load."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

_MAY_CHANGE = ("dropout", "activation_checkpointing")
"""Settings of the encoder that leave a trained one what it is."""


def items_identity(item_ids: Sequence[str]) -> dict[str, Any]:
    """Of what the item numbers stand for: their count and a sha256 of the ids."""
    return {"count": len(item_ids), "sha256": hashlib.sha256("\n".join(item_ids).encode()).hexdigest()}


def architecture_identity(settings: Mapping[str, Any], max_length: int) -> dict[str, Any]:
    """The settings of the encoder that a checkpoint is bound to, numbers and strings alone."""
    bound = {key: value for key, value in settings.items() if key not in _MAY_CHANGE}
    inner = settings["feed_forward_size"] or settings["hidden_size"]
    return {**bound, "feed_forward_size": inner, "max_length": max_length}


def check_items(saved: Mapping[str, Any] | None, items: Mapping[str, Any]) -> None:
    """Raises ValueError when the checkpoint's items are not those of the data."""
    if saved != items:
        found = "no list of items" if saved is None else f"{saved['count']} items (sha256 {saved['sha256'][:12]})"
        raise ValueError(
            f"the checkpoint was trained with {found}, the data have {items['count']} "
            f"(sha256 {items['sha256'][:12]}): item numbers would mean something else, or nothing. "
            "Use the data and the filters that the checkpoint was trained with"
        )


def check_architecture(saved: Mapping[str, Any] | None, configured: Mapping[str, Any]) -> None:
    """Raises ValueError when the checkpoint's architecture is not the configured one; the oldest ones name none."""
    if saved is None:
        return
    differences = [
        f"{key} is {saved.get(key)!r} in the checkpoint and {configured.get(key)!r} in the config"
        for key in sorted({*saved, *configured})
        if saved.get(key) != configured.get(key)
    ]
    if differences:
        raise ValueError(
            f"the checkpoint holds another network: {'; '.join(differences)}. Give model.init_args (for max_length "
            "data.init_args) the checkpoint's values, or train anew under another --run_name"
        )

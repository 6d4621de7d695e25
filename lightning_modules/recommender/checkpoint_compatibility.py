"""Checks that a checkpoint has the items and the architecture of the run, before the weights load."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from typing_extensions import Self

from datamodules.recommender.batch import FeaturesIdentity
from engine.checkpointing.checkpoint_schema import declare_part
from engine.checkpointing.schema import COUNT, MAPPING, TEXT, fields, optional
from lightning_modules.recommender.networks.architecture import ArchitectureSettings

declare_part("items", optional(fields({"count": COUNT, "sha256": TEXT})))
declare_part("architecture", optional(MAPPING))
declare_part("item_features", optional(fields({"columns": TEXT, "sha256": TEXT})))
declare_part("event_features", optional(fields({"columns": TEXT, "sha256": TEXT})))

FeatureOption = Literal["item_features", "event_features"]

_DIFFERENCES: dict[FeatureOption, tuple[str, str]] = {
    "item_features": (
        "rows of the data's items, or in which items are trained", "; rows of new items may be added"
    ),
    "event_features": ("the categories, means or deviations of the training events", ""),
}  # fmt: skip
"""What may differ besides the columns, and what may change."""

_MAY_CHANGE = ("dropout", "activation_checkpointing")
"""Settings of the encoder that do not change what a trained encoder computes."""

_ADDED: dict[str, object] = {"feed_forward": "relu", "time_buckets": "linear", "request_time": False}
"""Settings of the encoder that older checkpoints do not name, with the values that these were trained with."""


def items_identity(item_ids: Sequence[str]) -> dict[str, Any]:
    """Return the count of the items and a SHA-256 of their ids."""
    # The order counts: the item at index i has row i + 1 of the table, so a permutation is another model.
    return {"count": len(item_ids), "sha256": hashlib.sha256("\n".join(item_ids).encode()).hexdigest()}


def architecture_identity(settings: ArchitectureSettings, max_length: int) -> dict[str, Any]:
    """Return the settings of the encoder that a checkpoint requires, as numbers and strings."""
    bound = {key: value for key, value in settings.content().items() if key not in _MAY_CHANGE}
    # Null means the hidden size, so both ways to give the same width are equal.
    return {**bound, "feed_forward_size": settings.inner_size, "max_length": max_length}


def check_items(saved: Mapping[str, Any] | None, items: Mapping[str, Any]) -> None:
    """Raise ValueError if the checkpoint's items differ from the data's items."""
    if saved != items:
        found = "no list of items" if saved is None else f"{saved['count']} items (sha256 {saved['sha256'][:12]})"
        raise ValueError(
            f"the checkpoint was trained with {found}, the data have {items['count']} "
            f"(sha256 {items['sha256'][:12]}): item numbers would have another meaning. "
            "Use the data and the filters that the checkpoint was trained with"
        )


def check_features(
    saved: Mapping[str, Any] | None, features: FeaturesIdentity | None, option: FeatureOption = "item_features"
) -> None:
    """Raise ValueError if the checkpoint's features of items or events differ from the data's."""
    # With other codes or means, the same weights would read other features; hashes notice it.
    if saved == (None if features is None else features._asdict()):
        return
    name, key = option.replace("_", " "), f"data.init_args.{option}"
    if saved is None or features is None:
        trained, given = ("without", "has") if saved is None else ("with", "has no")
        way = f"Remove {key}" if saved is None else "Give it as the run's config.yaml does"
        found = f"the checkpoint was trained {trained} {name}, and the config {given} {key}"
    elif saved["columns"] != features.columns:
        found = f"the checkpoint was trained with the {name} {saved['columns']}, the config has {features.columns}"
        way = f"Give {key} the same columns"
    else:
        what, rule = _DIFFERENCES[option]
        hashes = f"sha256 {features.sha256[:12]} instead of {saved['sha256'][:12]}"
        found = f"{key} differ from those of the checkpoint in {what} ({hashes})"
        way = f"Use the file and the split that it was trained with{rule}"
    raise ValueError(f"{found}. {way}, or train anew under another --run_name")


def check_saved_architecture(saved: Mapping[str, Any] | None, configured: Mapping[str, Any]) -> None:
    """Raise ValueError if a checkpoint names an architecture that differs from the configured architecture."""
    if saved is None:
        return
    # An absent key of an old checkpoint is not a difference.
    saved = {**_ADDED, **saved}
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


class ModelIdentity(NamedTuple):
    """What a checkpoint of a recommender belongs to: items, architecture, and features of items and of events."""

    items: dict[str, Any]
    architecture: dict[str, Any]
    features: FeaturesIdentity | None
    event_features: FeaturesIdentity | None

    @classmethod
    def of(
        cls,
        item_ids: Sequence[str],
        settings: ArchitectureSettings,
        max_length: int,
        features: FeaturesIdentity | None,
        event_features: FeaturesIdentity | None,
    ) -> Self:
        """Return the identity of a network with these items, settings of the encoder, and features."""
        return cls(items_identity(item_ids), architecture_identity(settings, max_length), features, event_features)

    def save(self, checkpoint: dict[str, Any]) -> None:
        """Add the identity to a checkpoint, in place."""
        checkpoint["items"], checkpoint["architecture"] = self.items, self.architecture
        if self.features is not None:
            checkpoint["item_features"] = self.features._asdict()
        if self.event_features is not None:
            checkpoint["event_features"] = self.event_features._asdict()

    def check(self, checkpoint: Mapping[str, Any]) -> None:
        """Raise ValueError if a checkpoint has another identity."""
        check_items(checkpoint.get("items"), self.items)
        check_saved_architecture(checkpoint.get("architecture"), self.architecture)
        check_features(checkpoint.get("item_features"), self.features)
        check_features(checkpoint.get("event_features"), self.event_features, "event_features")

"""Renames option groups, options and values of earlier versions, whose configs and run directories are still read.

Imports nothing heavy: the report reads configs without torch and without a parser.
"""

from collections.abc import Callable, Mapping
from typing import Any

OPTION_GROUPS: Mapping[str, str] = {
    "example_log": "sample_previews",
    "gradient_coverage": "unused_parameters",
    "gradients": "ddp",
    "metrics_endpoint": "prometheus",
    "replica_parity": "replica_consistency",
}
"""{old name of a group of options: current name}."""

OPTIONS: Mapping[str, str] = {
    "decay_share": "decay_fraction",
    "describing_epochs": "caption_epochs",
    "row_tokens": "packed_length",
}
"""{old name of an option, the last part of its key: current name}."""

VALUES: Mapping[str, Mapping[str, str]] = {"tiling": {"places": "tile_positions"}}
"""{last part of an option's key: {old name of its value: current name}}."""


def rename_groups(config: Mapping[str, object], on_rename: Callable[[str], None] = lambda old: None) -> dict[str, Any]:
    """Return a loaded config in which all groups have their current names.

    Args:
        config: the whole config, or any other mapping, which is returned as it is.
        on_rename: called with the old name of each renamed group.
    """
    renamed: dict[str, Any] = {}
    for key, value in config.items():
        if key in OPTION_GROUPS and isinstance(value, Mapping):
            on_rename(key)
            key = OPTION_GROUPS[key]
            # A file that has both names sets options of one group.
            value = {**renamed.get(key, {}), **value}
        elif isinstance(renamed.get(key), dict) and isinstance(value, Mapping):
            value = {**renamed[key], **value}
        renamed[key] = value
    return renamed


def current_key(key: str) -> str:
    """Return a dotted key with the current names of its options; its first group as it is, see `rename_groups`."""
    return ".".join(OPTIONS.get(part, part) for part in key.split("."))


def current_value(key: str, value: Any) -> Any:
    """Return the current name of an option's value, or the value itself if it was not renamed.

    Args:
        key: key of the option, with or without the groups before it.
        value: value in a config or on a command line.
    """
    names = VALUES.get(key.rpartition(".")[2])
    return names.get(value, value) if names and isinstance(value, str) else value

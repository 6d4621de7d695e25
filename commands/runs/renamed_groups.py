"""Renames option groups of version 0.1.0, whose configs and run directories are still read.

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

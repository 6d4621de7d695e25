"""Locates settings in config files: file, line and dotted key."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import yaml

from commands.runs.current_names import current_option


class SettingLocation(NamedTuple):
    """Location of a setting in a file."""

    file: Path
    line: int
    key: str  # dotted
    parent: yaml.MappingNode
    entry: tuple[yaml.Node, yaml.Node]


def find_settings(file: Path, tree: yaml.Node, keys: Sequence[str]) -> list[SettingLocation]:
    """Return the innermost settings that the keys of an error lead to; keys omit `init_args` and list positions."""
    locations: list[SettingLocation] = []
    _descend(file, tree, list(keys), "", locations)
    deepest = max((setting.key.count(".") for setting in locations), default=0)
    return [setting for setting in locations if setting.key.count(".") == deepest]


def _descend(file: Path, node: yaml.Node, keys: list[str], path: str, found: list[SettingLocation]) -> None:
    if not keys:
        return
    if isinstance(node, yaml.SequenceNode):
        for number, item in enumerate(node.value):
            _descend(file, item, keys, f"{path}[{number}]", found)
    if not isinstance(node, yaml.MappingNode):
        return
    for entry in node.value:
        key, value = entry
        name = f"{path}.{key.value}" if path else key.value
        # A key may be dotted itself.
        own = key.value.count(".") + 1 if isinstance(key, yaml.ScalarNode) else 0
        words = current_option(name).split(".")[-own:] if own else []
        # A class of the user may have an option of an old name.
        written = key.value.split(".") if own else []
        if (words and words == keys[: len(words)]) or (written and written == keys[: len(written)]):
            found.append(SettingLocation(file, key.start_mark.line + 1, name, node, entry))
            _descend(file, value, keys[len(words) :], name, found)
        elif key.value == "init_args":
            _descend(file, value, keys, name, found)

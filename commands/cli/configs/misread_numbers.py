"""Refuses text that YAML 1.1 reads as a number: `1:30`, of base 60, is 90, and `0777` is 511 or 777.

Unquoted, such a text is an error where a file is read (`engine.io.yaml_file`). A value of the command line and a quoted
value of a file may be meant as a text, which only the type of the option decides; it is checked once they are parsed.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import yaml
from jsonargparse import Namespace

from commands.cli.configs.config_files import without_init_args
from commands.launch.command_line import option_values
from engine.io.yaml_file import is_ambiguous


def ambiguous_options(arguments: Iterable[str]) -> dict[str, str]:
    """Return {key: text} of the options of a command line whose text is ambiguous."""
    return _ambiguous((option.removeprefix("--"), value) for option, value in option_values([*arguments]))


def ambiguous_texts(tree: yaml.Node) -> dict[str, str]:
    """Return {key: text} of the values of a file whose text is ambiguous."""
    return _ambiguous(_texts(tree, ""))


def find_misread(texts: Mapping[str, str], config: Namespace) -> tuple[str, str] | None:
    """Return the key and the message of the first of the texts from which a number was read; None if there is none.

    Args:
        texts: {key: text}, see `ambiguous_options` and `ambiguous_texts`.
        config: what the parser has read.
    """
    values = dict(_leaves(config.as_dict(), "")) if texts else {}
    for key, text in texts.items():
        value = values.get(key)
        if isinstance(value, (int, float)):
            return key, f"expected a number in decimal, found {text}, which would be read as {value}"
    return None


def _ambiguous(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    # A later value of a key replaces an earlier value, as in the parser.
    last = {without_init_args(key): text for key, text in pairs}
    return {key: text for key, text in last.items() if is_ambiguous(text)}


def _texts(node: yaml.Node, prefix: str) -> Iterator[tuple[str, str]]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield from _texts(value, f"{prefix}.{key.value}" if prefix else str(key.value))
    elif isinstance(node, yaml.ScalarNode):
        yield prefix, node.value


def _leaves(value: object, prefix: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _leaves(inner, f"{prefix}.{name}" if prefix else str(name))
    else:
        yield without_init_args(prefix), value

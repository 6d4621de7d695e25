"""Maps old names, which configs and run directories may contain, to the current class paths, options and values.

A config that `fit` wrote has the full path of every class and every option, so moving a class, renaming a group of
options or removing an option would make old runs unreadable. The aliases are removed in version 0.3.0.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import yaml
from jsonargparse import get_loader, set_loader

from commands.launch.command_line import split_arguments
from commands.runs.current_names import (
    CLASS_PATHS,
    DISTINCT_OPTIONS,
    OPTION_GROUPS,
    OPTIONS,
    REMOVED_OPTIONS,
    current_key,
    current_value,
    rename_groups,
)
from engine.io.yaml_file import YamlFileError, check_yaml, is_ambiguous, parse_yaml

log = logging.getLogger("lockstep")


_COLLECTIONS = "\n[{&*"
"""Characters without which a text has no key and no alias."""

PARSER_MODE = "lockstep"
"""The parser's YAML, in which the aliases are replaced."""

_UNSET = (None, False)
"""Values with which a removed option had no effect. Every config that a run has written has them."""


class _Aliases:
    """Replaces old names, drops removed options; logs one deprecation line for each name."""

    def __init__(self) -> None:
        self._logged: set[str] = set()  # jsonargparse loads the same text several times

    def replace(self, value: object, groups: str | None = "", options: Mapping[str, str] = OPTIONS) -> Any:
        """Return a loaded config with the current class paths, keys and values.

        Args:
            value: the config or a part of it.
            groups: current key of the part, with a dot behind it; None within a list, whose keys are no options of the
                model or the data.
            options: names to replace.
        """
        if isinstance(value, dict):
            options = DISTINCT_OPTIONS if _is_foreign(value) else options
            renamed: dict[Any, Any] = {}
            for key, item in value.items():
                current = key if groups is None else self.rename_key(key, groups, options)
                inner = None if groups is None else f"{groups}{current}."
                replaced = self.replace(self.rename_value(str(key), item), inner, options)
                if isinstance(replaced, dict) and isinstance(renamed.get(current), dict):
                    replaced = {**renamed[current], **replaced}  # a file has parts by the old and the current name
                renamed[current] = replaced
            return renamed
        if isinstance(value, list):
            return [self.replace(item, groups=None) for item in value]
        if isinstance(value, str) and value in CLASS_PATHS:
            self._log_once(value, f"{value} is now {CLASS_PATHS[value]}; version 0.3.0 will not accept the old path")
            return CLASS_PATHS[value]
        return value

    def drop(self, option: str, config: dict[str, Any]) -> None:
        """Remove an option, given as a dotted key, from a loaded config."""
        *groups, name = option.split(".")
        group: Any = config
        for key in groups:
            group = group.get(key) if isinstance(group, dict) else None
        if isinstance(group, dict) and name in group and group.pop(name) not in _UNSET:
            self.log_removed(option)

    def rename(self, argument: str) -> str:
        """Return `--GROUP.OPTION` or `--GROUP` with current names; any other argument as it is."""
        if not argument.startswith("--"):
            return argument
        group, dot, option = argument.removeprefix("--").partition(".")
        if group in OPTION_GROUPS:
            self.log_renamed(group)
        renamed = self.rename_key(f"{group}.{option}", options=DISTINCT_OPTIONS).partition(".")[2] if dot else ""
        return f"--{OPTION_GROUPS.get(group, group)}{dot}{renamed}"

    def rename_key(self, key: Any, groups: str = "", options: Mapping[str, str] = OPTIONS) -> Any:
        """Return a key of a config, which may be dotted, with the current name of its option.

        Args:
            key: the key; one that is no text is returned as it is.
            groups: current key of the groups that contain it, with a dot behind it.
            options: names to replace.
        """
        if not isinstance(key, str):
            return key
        return current_key(f"{groups}{key}", options, self._log_option).removeprefix(groups)

    def rename_value(self, key: str, value: Any) -> Any:
        """Return the current name of the value of an option, given by its key; a class path as it is, see `replace`."""
        current = value if isinstance(value, str) and value in CLASS_PATHS else current_value(key, value)
        if current is not value:  # a comparison would take NaN for a renamed value
            option = key.removeprefix("--").rpartition(".")[2]
            self._log_once(
                f"{option} {value}",
                f"{option} {value} is now {option} {current}; version 0.3.0 will not accept the old name",
            )
        return current

    def _log_option(self, old: str) -> None:
        self._log_once(old, f"{old} is now {OPTIONS[old]}; version 0.3.0 will not accept the old name")

    def log_renamed(self, group: str) -> None:
        """Log the current name of a group of options."""
        self._log_once(group, f"{group} is now {OPTION_GROUPS[group]}; version 0.3.0 will not accept the old name")

    def log_removed(self, option: str) -> None:
        """Log that an option has no effect."""
        self._log_once(option, f"{option} was removed and has no effect: {REMOVED_OPTIONS[option]}")

    def _log_once(self, name: str, message: str) -> None:
        if name not in self._logged:
            self._logged.add(name)
            log.warning("deprecated: %s", message)


def _is_foreign(config: dict[Any, Any]) -> bool:
    """Return whether a part of a config names a class of the user, which may have options of any name."""
    path = config.get("class_path")
    return isinstance(path, str) and "." in path and not path.startswith(("datamodules.", "lightning_modules."))


def register_aliases() -> None:
    """Register the YAML loader of `PARSER_MODE`."""
    aliases, load_yaml = _Aliases(), get_loader("yaml")

    def load(text: str, path: str = "") -> Any:
        if any(letter in text for letter in _COLLECTIONS):
            check_yaml(text, "the settings")
        elif is_ambiguous(text):  # a value of type Any; `misread_numbers` checks the others
            return text
        loaded = load_yaml(text)
        if path and isinstance(loaded, str):  # jsonargparse reads a file of `KEY:` alone as a text
            loaded = parse_yaml(text, path)
        config = aliases.replace(loaded)
        if isinstance(config, dict):
            for option in REMOVED_OPTIONS:
                aliases.drop(option, config)
            config = rename_groups(config, aliases.log_renamed)
        return config

    set_loader(PARSER_MODE, load, exceptions=(yaml.YAMLError, YamlFileError))


def replace_aliases(arguments: Sequence[str]) -> list[str]:
    """Return the command line with the current class paths, keys and values, and without removed options.

    Args:
        arguments: `--OPTION VALUE` or `--OPTION=VALUE`.
    """
    aliases = _Aliases()
    current: list[str] = []
    for argument in split_arguments(arguments, [f"--{option}" for option in REMOVED_OPTIONS]):
        if argument.option:
            aliases.log_removed(argument.option.removeprefix("--"))
            continue
        key, equals, value = argument.words[0].partition("=")
        key = aliases.rename(key)
        if equals:
            current.append(f"{key}={aliases.replace(aliases.rename_value(key, value))}")
        else:
            option = current[-1] if current and current[-1].startswith("--") else ""
            current.append(aliases.replace(aliases.rename_value(option, key)))
    return current

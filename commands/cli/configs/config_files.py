"""Checks the config files of a command line before the parser reads them, and locates wrong settings."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import yaml

from commands.cli.configs.setting_locations import find_settings
from commands.launch.command_line import CONFIG_OPTIONS, option_values, values_of
from commands.runs.current_names import current_option
from engine.io.yaml_file import YamlFileError, check_yaml, read_text

_SUFFIXES = (".yaml", ".yml")
_MAX_PATH_LENGTH = 4096


class ConfigFile(NamedTuple):
    """A config file and its node tree. The parser parses it in its folder, where a relative path leads nowhere."""

    path: Path  # as the user gave it
    tree: yaml.Node | None


def check_config(path: Path) -> yaml.Node | None:
    """Check a config file, and return its node tree, None if it does not exist.

    The parser names neither the file nor the line of such errors.

    Raises:
        OSError, YamlFileError: see `engine.io.yaml_file`; a file that does not exist is the parser's error.
    """
    if path.is_symlink() and not path.exists():
        raise FileNotFoundError(f"{path}: the symbolic link leads to no file; expected a YAML file")
    if not path.exists():
        return None
    tree = check_yaml(read_text(path), str(path))
    _require_settings(tree, str(path))
    return tree


def check_arguments(arguments: Sequence[str]) -> None:
    """Check every config file of a command line, and every value that is YAML itself.

    Args:
        arguments: `--OPTION VALUE` or `--OPTION=VALUE`; a file of settings is also a value of `--model` and the like.

    Raises:
        OSError, YamlFileError: the first error.
    """
    for option, value in option_values(arguments):
        if option in CONFIG_OPTIONS and (not value or value.startswith("--")):
            raise ValueError(f"{option}: found nothing, expected a YAML file")
        # For longer texts, the functions of the file system raise an error of their own.
        is_path = "\n" not in value and len(value) < _MAX_PATH_LENGTH
        if is_path and option in CONFIG_OPTIONS:
            check_config(Path(value))
        elif is_path and value.endswith(_SUFFIXES) and Path(value).exists():
            check_yaml(read_text(Path(value)), value)
        elif value[:1] in ("[", "{") or (option in CONFIG_OPTIONS and "\n" in value):
            _check_value(option, value)


def config_files(arguments: Sequence[str]) -> list[Path]:
    """Return the files of `--config`, in their order."""
    return [Path(value) for value in values_of(arguments, *CONFIG_OPTIONS)]


def locate(keys: Sequence[str], arguments: Sequence[str], reading: ConfigFile | None) -> tuple[str, str]:
    """Return where a setting was given, `FILE:LINE: ` or empty, and its key as the user wrote it.

    Args:
        keys: keys of a parser's error, see `parser_message.parse_error`.
        arguments: command line.
        reading: file that the parser was reading; None: it has read all, and the command line overrides them.
    """
    searched_key = without_init_args(".".join(keys))
    option_keys = [option.removeprefix("--").removesuffix("+") for option, _ in option_values(arguments)]
    if reading is None:
        # The last of several equal options counts.
        for option in reversed(option_keys):
            key = without_init_args(option)
            # A key of a dictionary, or an option whose value has the setting in it: `--trainer '{max_epochs: 0}'`.
            is_inner, is_outer = key.startswith(f"{searched_key}."), searched_key.startswith(f"{key}.")
            if key == searched_key or (len(keys) > 1 and is_inner) or is_outer:
                return "", f"--{option}"
    for file, tree in [reading] if reading else _last_first(arguments):
        settings = find_settings(file, tree, keys) if tree is not None else []
        if settings and without_init_args(settings[0].key) == searched_key:
            return f"{file}:{settings[0].line}: ", settings[0].key
    return "", ".".join(keys)


def locate_setting_error(message: str, arguments: Sequence[str]) -> str:
    """Return `FILE:LINE: ` of the setting with whose dotted key a message begins; empty if no file has it.

    Args:
        message: of an error that a class raised for its arguments.
        arguments: command line.
    """
    key = re.match(r"[a-z_]+(\.[a-z_]\w*)+", message)
    return locate(without_init_args(key[0]).split("."), arguments, None)[0] if key else ""


def without_init_args(key: str) -> str:
    """Return a dotted key as the parser's errors have it: current names, no `init_args`, no positions in lists."""
    parts = (part.partition("[")[0] for part in key.split("."))
    return current_option(".".join(part for part in parts if part not in ("init_args", "dict_kwargs")))


def _last_first(arguments: Sequence[str]) -> Iterator[ConfigFile]:
    for file in reversed(config_files(arguments)):
        try:
            yield ConfigFile(file, check_yaml(read_text(file), str(file)))
        except (OSError, YamlFileError):  # reported where it is read
            continue


def _require_settings(tree: yaml.Node | None, name: str) -> None:
    if not isinstance(tree, yaml.MappingNode):
        found = "nothing" if tree is None else "a list" if isinstance(tree, yaml.SequenceNode) else "a text"
        raise YamlFileError(name, f"found {found}, expected settings, KEY: VALUE", 1)


def _check_value(option: str, value: str) -> None:
    try:
        check_yaml(value, option)
    except YamlFileError as error:
        if "no YAML" not in error.problem:  # the option may be a text that begins with a bracket
            raise

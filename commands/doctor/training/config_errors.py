"""Finds all errors of configs at once, with file and line; parsing stops at the first error.

The setting of each error is removed, and the rest is parsed again. Settings are removed from the YAML node tree, which
keeps the line numbers.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import yaml

from commands.cli.configs.parser_message import deduplicate, parse_error
from commands.cli.configs.setting_locations import find_settings
from commands.cli.shipped_configs import closest_configs
from commands.doctor.check import Finding
from engine.io.yaml_file import YamlFileError, check_yaml, read_text
from engine.system.installation import PROGRAM

_MAX_ITEMS = 20
"""Largest number of errors reported."""


def config_errors(
    files: Sequence[Path],
    parse: Callable[[list[str]], object],
    parse_files: Callable[[list[str]], object],
    limit: int = _MAX_ITEMS,
) -> Iterator[Finding]:
    """Yield the errors of configs, each with file and line.

    Args:
        files: configs; later files override earlier files.
        parse: parses texts of configs and the options of the command line; raises the first error.
        parse_files: parses texts of configs alone; an error that it does not raise is in the options.
        limit: largest number of errors to report.
    """
    trees, findings, all_read = _read_trees(files)
    yield from findings
    # Each turn finds the first error and removes its setting.
    for _ in range(limit):
        texts = [yaml.serialize(trees[file]) if file in trees else "{}" for file in files]
        first = _error(parse, texts)
        if first is None:
            return
        keys, reason = parse_error(first)
        message = f"{'.'.join(keys)}: {reason}" if keys else deduplicate(first)
        # The files alone do not have this error, so an option of the command line has it.
        if first != _error(parse_files, texts):
            if all_read or keys:
                remedy = f"correct the option; {PROGRAM} fit --help lists the settings"
                yield _finding("command line", message, remedy)
            return
        settings = [
            setting for file in reversed(files) if file in trees for setting in find_settings(file, trees[file], keys)
        ]
        deepest = max((setting.key.count(".") for setting in settings), default=0)
        settings = [setting for setting in settings if setting.key.count(".") == deepest]
        if not settings:  # a required key is missing
            if all_read or keys:
                yield _finding("config", message)
            return
        yield _finding(f"{settings[0].file}:{settings[0].line}", f"{settings[0].key}: {reason}")
        for setting in settings:
            setting.parent.value.remove(setting.entry)


def _read_trees(files: Sequence[Path]) -> tuple[dict[Path, yaml.Node], list[Finding], bool]:
    """Return the trees of the files with settings, the errors of the others, and whether all files were read."""
    trees: dict[Path, yaml.Node] = {}
    findings: list[Finding] = []
    all_read = True
    for file in dict.fromkeys(files):
        try:
            tree = check_yaml(read_text(file), str(file))
        except OSError as error:
            similar = [] if file.exists() else closest_configs(file)
            remedy = f"did you mean {' or '.join(similar)}?" if similar else "name a file that exists: ls configs/*"
            findings.append(_finding(str(file), error.strerror or str(error), remedy))
            all_read = False
        except YamlFileError as error:
            findings.append(_finding(f"{file}:{error.line}" if error.line else str(file), error.problem))
            all_read = False
        else:
            if isinstance(tree, yaml.MappingNode):
                trees[file] = tree
            elif tree is not None:
                findings.append(_finding(f"{file}:1", "expected settings, KEY: VALUE"))
    return trees, findings, all_read


def _error(parse: Callable[[list[str]], object], texts: list[str]) -> str | None:
    try:
        parse(texts)
    except Exception as error:  # a parser or a type may raise anything
        return str(error)
    return None


def _finding(where: str, what: str, remedy: str = "") -> Finding:
    return Finding(
        "config", "fail", f"{where}: {what}", "training will fail at startup",
        remedy or f"correct the line; {PROGRAM} fit --help lists the settings",
    )  # fmt: skip

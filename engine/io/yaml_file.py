"""Reads YAML files within bounds of time and memory; a key that occurs twice is an error.

PyYAML keeps the last of two equal keys and drops the first, expands aliases without a limit, and reads nested
collections recursively. Each file is therefore checked before its values are built.
"""

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

MAX_BYTES = 500_000
"""Largest size of a file."""

MAX_PARTS = 10_000
"""Largest number of keys and values of a file, aliases expanded; 64 characters of a value are a part."""

MAX_DEPTH = 50
"""Largest number of collections inside each other."""

_CHARACTERS = 64
"""Characters of a value that count as one of MAX_PARTS."""

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TAGS = frozenset(f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float", "str", "seq", "map")) | {
    "tag:yaml.org,2002:timestamp"  # of a date without quotes, which a setting may take as a text
}
_DIGITS = 300
"""Most digits of an integer. A larger integer is beyond the range of a float, and Python refuses 4,301 digits."""
_MERGE = "tag:yaml.org,2002:merge"
_TEXT = "tag:yaml.org,2002:str"
_AMBIGUOUS = re.compile(r"[-+]?(0[0-9_]+|[1-9][0-9_]*(:[0-5]?[0-9])+|[0-9][0-9_]*(:[0-5]?[0-9])+\.[0-9_]*)")
"""Numbers that YAML 1.1 reads as octal or in base 60."""


class YamlFileError(ValueError):
    """Error in a YAML file or text.

    Args:
        name: path of the file, or what the text is.
        problem: what was found, and what to do.
        line: number of the line, from 1; None if the error has none.
    """

    def __init__(self, name: str, problem: str, line: int | None = None) -> None:
        super().__init__(f"{name}:{line}: {problem}" if line else f"{name}: {problem}")
        self.problem, self.line = problem, line


def read_yaml(path: Path) -> Any:
    """Return the content of a YAML file; None if it is empty.

    Raises:
        OSError: the file cannot be read.
        YamlFileError: it is not a regular file, too large, not UTF-8, not YAML, or has a key twice.
    """
    return parse_yaml(read_text(path), str(path))


def parse_yaml(text: str, name: str) -> Any:
    """Return the content of a YAML text; see `read_yaml`.

    Args:
        text: one YAML document.
        name: path of the text's file, for messages.
    """
    check_yaml(text, name)
    try:
        return yaml.load(text, _LOADER)
    except yaml.YAMLError as error:
        raise _no_yaml(error, text, name) from error
    except ValueError as error:  # a date or a number that Python does not have
        raise YamlFileError(name, f"no YAML: {error}") from error


def read_text(path: Path) -> str:
    """Return the text of a file that may be a config.

    Raises:
        OSError: the file cannot be read.
        YamlFileError: it is not a regular file, too large or not UTF-8.
    """
    with open(path, "rb", opener=_open_without_waiting) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise YamlFileError(str(path), "found no regular file; expected a YAML file")
        # One byte more than allowed, so that a larger file is detected without reading it whole.
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        size = f"{max(status.st_size, len(content)):,} bytes"
        raise YamlFileError(str(path), f"found {size}; a config has at most {MAX_BYTES:,} bytes")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        found = f"byte 0x{content[error.start]:02x}"
        raise YamlFileError(str(path), f"found {found}, which is not UTF-8; save the file as UTF-8", line) from error


def check_yaml(text: str, name: str) -> yaml.Node | None:
    """Check a YAML text without building its values; return its node tree, None if it is empty.

    Raises:
        YamlFileError: the text is too large, nested too deeply, no YAML, or has a key twice.
    """
    try:
        _check_size(text, name)
        tree: yaml.Node | None = yaml.compose(text, _LOADER)
    except yaml.YAMLError as error:
        raise _no_yaml(error, text, name) from error
    if tree is not None:
        _check_keys(tree, name)
        _check_values(tree, name)
    return tree


def is_ambiguous(text: str) -> bool:
    """Return whether YAML 1.1 reads a text as another number than its decimal digits: 010 as 8, 12:30 as 750."""
    return _AMBIGUOUS.fullmatch(text.strip()) is not None


def _open_without_waiting(path: str, flags: int) -> int:
    """Open a file; a FIFO without a writer would block, and Windows opens no directory."""
    if os.path.isdir(path):
        raise YamlFileError(path, "found a directory; expected a YAML file")
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _check_size(text: str, name: str) -> None:
    """Raise if the text has too many parts, aliases expanded, or too many levels."""
    sizes: dict[str, int] = {}
    collections: list[tuple[str | None, int]] = [(None, 0)]  # open containers: anchor, parts before it
    total = 0
    for event in yaml.parse(text, _LOADER):
        mark: Any = event.start_mark
        line = mark.line + 1
        anchor, before = getattr(event, "anchor", None), total
        if isinstance(event, yaml.CollectionStartEvent):
            collections.append((anchor, total))
            total += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = collections.pop()
        elif isinstance(event, yaml.ScalarEvent):
            total += 1 + len(event.value) // _CHARACTERS
        elif isinstance(event, yaml.AliasEvent):
            if any(anchor == opened for opened, _ in collections):
                raise YamlFileError(name, f"the alias *{anchor} is inside its own anchor", line)
            # An alias counts as much as its anchor, so nested aliases (a billion laughs) exceed the limit.
            total += sizes.get(str(event.anchor), 1)
        if isinstance(event, (yaml.CollectionEndEvent, yaml.ScalarEvent)) and anchor:
            sizes[anchor] = total - before
        if total > MAX_PARTS:
            raise YamlFileError(name, f"found more than {MAX_PARTS:,} keys and values, aliases expanded", line)
        if len(collections) > MAX_DEPTH + 1:
            raise YamlFileError(name, f"found more than {MAX_DEPTH} levels of nested settings", line)


def _check_keys(tree: yaml.Node, name: str) -> None:
    """Raise if a key occurs twice, also once as `a.b` and once as `b` of the section `a`."""
    lines: dict[str, int] = {}
    for key, line in _keys(tree):
        if key in lines:
            raise YamlFileError(name, f"the key {key} stands twice, first in line {lines[key]}; keep one", line)
        lines[key] = line


def _keys(node: yaml.Node, prefix: str = "") -> Iterator[tuple[str, int]]:
    """Yield the dotted path of each key with its line, in the order of the text."""
    if isinstance(node, yaml.SequenceNode):
        for number, item in enumerate(node.value):
            yield from _keys(item, f"{prefix}[{number}]")
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                path = f"{prefix}.{key.value}" if prefix else str(key.value)
                if key.tag != _MERGE:  # a section may merge several
                    yield path, key.start_mark.line + 1
                yield from _keys(value, path)


def _check_values(tree: yaml.Node, name: str) -> None:
    """Raise at a tag, a key that is neither text nor a number, or digits that YAML 1.1 reads as another number."""
    pending, seen = [tree], set()
    while pending:
        node = pending.pop()
        # An alias is the same node object, which needs one check.
        if id(node) in seen:
            continue
        seen.add(id(node))
        if node.tag not in _TAGS:
            tag = node.tag.removeprefix("tag:yaml.org,2002:")
            problem = f"found the tag {tag}, expected a plain value; quote it if it is a text"
            raise YamlFileError(name, problem, node.start_mark.line + 1)
        if isinstance(node, yaml.SequenceNode):
            pending += node.value
        elif isinstance(node, yaml.MappingNode):
            for key, _ in node.value:
                _check_key(key, node is tree, name)
            pending += [value for _, value in node.value]
        # A plain scalar has no style; quoted digits are a text.
        elif isinstance(node, yaml.ScalarNode) and not node.style and (misread := _misread_number(node)):
            raise YamlFileError(name, misread, node.start_mark.line + 1)


def _check_key(key: yaml.Node, is_outer: bool, name: str) -> None:
    """Raise if a key is a collection, or a key of the whole file is another value than a text, such as 1 or null."""
    if isinstance(key, yaml.ScalarNode) and (key.tag in (_TEXT, _MERGE) or key.style or not is_outer):
        return
    found = repr(key.value) if isinstance(key, yaml.ScalarNode) else "a list or a mapping"
    raise YamlFileError(name, f"found {found} as a key, expected the name of a setting", key.start_mark.line + 1)


def _misread_number(node: yaml.ScalarNode) -> str | None:
    """Return why a number is not what its digits are, 010 as 8 and 12:30 as 750, or why Python cannot have it."""
    if is_ambiguous(node.value):
        return f"YAML reads {node.value} as octal or of base 60; quote a text or a time, or write it in decimal"
    if node.tag.endswith(":int") and len(node.value) > _DIGITS:
        return f"found an integer of {len(node.value):,} digits, expected at most {_DIGITS}; quote a text"
    return None


def _no_yaml(error: yaml.YAMLError, text: str, name: str) -> YamlFileError:
    """Return PyYAML's error in one line."""
    mark = getattr(error, "problem_mark", None)
    parts = (getattr(error, "context", None), getattr(error, "problem", None))
    problem = ", ".join(part for part in parts if part) or str(error).partition("\n")[0]
    position = getattr(error, "position", None)  # of a character that YAML does not allow
    line = mark.line if mark else text.count("\n", 0, position) if position is not None else None
    if "nesting depth" in problem:  # PyYAML from 6.0.4 on has a limit of its own, of which the parser learns first
        return YamlFileError(
            name, f"found more than {MAX_DEPTH} levels of nested settings", 1 if line is None else line + 1
        )
    if line is None:
        return YamlFileError(name, f"no YAML: {problem}")
    if "\t" in "".join(text.splitlines()[line : line + 1]):
        problem += "; the line has a tab: indent with spaces"
    return YamlFileError(name, f"no YAML: {problem}", line + 1)

"""What is wrong with configs, all of it at once and where: parsing stops at the first error.

So the setting that an error is about is taken out, the rest is parsed again, and so on. YAML's own tree of a file keeps
the lines; it is what settings are taken out of.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import yaml

from commands.doctor.finding import Finding

_MOST = 20
"""Errors that are told."""
_KEY = re.compile(
    r"Parser key \"([^\"]+)\"|Option '([^']+)' is not accepted|(?:Group '([^']+)' )?does not accept option '([^']+)'"
)
_NOT_A_REASON = ("Does not validate", "Subtypes:", "Errors:", "Given value type", "Parser key", "Problem with given")


class Place(NamedTuple):
    """Where a setting stands."""

    file: Path
    line: int
    key: str  # with dots
    parent: yaml.MappingNode
    entry: tuple[yaml.Node, yaml.Node]


def config_errors(
    files: Sequence[Path],
    parse: Callable[[list[str]], object],
    parse_files: Callable[[list[str]], object],
    most: int = _MOST,
) -> Iterator[Finding]:
    """
    Args:
        files: configs, laid over each other.
        parse: parses texts of configs, and the command line's settings over them; raises what is wrong first.
        parse_files: the same without the command line's settings: what it does not say is said of those.
    """
    trees: dict[Path, yaml.Node] = {}
    all_read = True
    for file in dict.fromkeys(files):
        try:
            tree = yaml.compose(file.read_text(encoding="utf-8"))
        except OSError as error:
            yield _finding(str(file), error.strerror or str(error), "name a file that is there: ls configs/*")
            all_read = False
            continue
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            mark = getattr(error, "problem_mark", None)
            problem = " ".join(filter(None, (getattr(error, "context", ""), getattr(error, "problem", ""))))
            yield _finding(f"{file}:{mark.line + 1}" if mark else str(file), f"no YAML: {problem or error}")
            all_read = False
            continue
        if isinstance(tree, yaml.MappingNode):
            trees[file] = tree
        elif tree is not None:
            yield _finding(f"{file}:1", "expected settings, KEY: VALUE")
    for _ in range(most):
        texts = [yaml.serialize(trees[file]) if file in trees else "{}" for file in files]
        error = _error(parse, texts)
        if error is None:
            return
        keys, reason = _told(error)
        said = f"{'.'.join(keys)}: {reason}" if keys else _once(error)
        if error != _error(parse_files, texts):
            if all_read or keys:
                remedy = "correct the option; python train.py fit --help lists the settings"
                yield _finding("command line", said, remedy)
            return
        places = [place for file in reversed(files) if file in trees for place in _find(file, trees[file], keys)]
        deepest = max((place.key.count(".") for place in places), default=0)
        places = [place for place in places if place.key.count(".") == deepest]
        if not places:  # a key that is missing
            if all_read or keys:
                yield _finding("config", said)
            return
        yield _finding(f"{places[0].file}:{places[0].line}", f"{places[0].key}: {reason}")
        for place in places:
            place.parent.value.remove(place.entry)


def _error(parse: Callable[[list[str]], object], texts: list[str]) -> str | None:
    try:
        parse(texts)
    except Exception as error:  # whatever the parser or a type says no with
        return str(error)
    return None


def _finding(where: str, what: str, remedy: str = "") -> Finding:
    return Finding(
        "config", "fail", f"{where}: {what}", "a training with this config ends before it begins",
        remedy or "correct the line; python train.py fit --help lists the settings",
    )  # fmt: skip


def _once(message: str) -> str:
    """The parser hands its errors through itself, which may add the same advice again."""
    return "; ".join(dict.fromkeys(message.strip().split("; ")))


def _told(message: str) -> tuple[list[str], str]:
    """The keys of an error from the outermost on, and what is wrong with the innermost one's value."""
    keys: list[str] = []
    depth, inside = -1, message.splitlines()
    for number, line in enumerate(message.splitlines()):
        found, indent = _KEY.search(line), len(line) - len(line.lstrip())
        if found and indent > depth:  # else it is of another type that the value might have been of
            keys += ".".join(filter(None, found.groups())).split(".")
            depth, inside = indent, message.splitlines()[number:]
    rest = [line for line in inside[1:] if len(line) - len(line.lstrip()) > depth or not line.strip()]
    if not keys or "is not accepted" in inside[0] or "does not accept" in inside[0]:
        return keys, "there is no such setting" if keys else inside[0]
    own = inside[0].partition('":')[2].strip()
    words = [line.strip().removeprefix("- ") for line in rest]
    reasons = [word for word in words if word and not word.startswith(_NOT_A_REASON)]
    told = ", ".join(dict.fromkeys([own] * bool(own) + reasons))
    told = re.sub(r", Expected a ", " or ", told)
    told = re.sub(r"<class '(?:\w+\.)*(\w+)'>", r"\1", told).replace("typing.", "").replace("NoneType", "null")
    return keys, told.replace(". Got value:", ", found").replace("Given value:", "found")


def _find(file: Path, tree: yaml.Node, keys: Sequence[str]) -> list[Place]:
    """The innermost setting that an error's keys lead to; `init_args` and places in lists are not among them."""
    found: list[Place] = []
    _descend(file, tree, list(keys), "", found)
    deepest = max((place.key.count(".") for place in found), default=0)
    return [place for place in found if place.key.count(".") == deepest]


def _descend(file: Path, node: yaml.Node, keys: list[str], path: str, found: list[Place]) -> None:
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
        if key.value == keys[0]:
            found.append(Place(file, key.start_mark.line + 1, name, node, entry))
            _descend(file, value, keys[1:], name, found)
        elif key.value == "init_args":
            _descend(file, value, keys, name, found)

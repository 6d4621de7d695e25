"""References of a page to links, files, settings and commands, and those that do not exist."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.conftest import REPOSITORY
from tests.docs.pages import code, prose, tables
from tests.docs.settings import option_strings, parser_of_all_commands, setting_keys

FOLDERS = "benchmarks|callbacks|commands|configs|datamodules|deploy|docs|engine|lightning_modules|tests"
FAMILIES = [path.name for path in (REPOSITORY / "configs").iterdir() if path.name != "overlays"]
THEIRS = re.compile(r"there|flag\b|key of|the guide")
"""Head of a table whose first column quotes an original guide."""
ADDED = "byte_language"
"""Family that docs/add-a-family.md adds; test_add_a_family.py follows that page."""
GONE = {"data.group_by_length"}
"""Options of measurements whose commit the page names."""
HISTORY = "CHANGELOG.md"
"""Names what was removed, so that only its links are checked."""
SOURCES = ("callbacks", "engine", "lightning_modules")
SUFFIXES = ("yaml", "onnx", "safetensors", "jsonl", "json", "py", "schema.json", "sbatch", "log", "x")


class Reference(NamedTuple):
    """A name on a page, and what it is the name of: link, test, file, config, key, option, metric, ..."""

    kind: str
    name: str


def references(text: str) -> Iterator[Reference]:
    """Yield everything on a page that has to exist, kind by kind."""
    ours = _without_theirs(text)
    quoted = code(ours)
    for title, target in re.findall(r"\[([^\]]*)\]\(([^)\s]+)\)", prose(text)):
        if not re.match(r"https?://", target):
            yield Reference("link", target)
            if title.startswith("test_"):
                yield Reference("test", f"{target}::{title}")
    for name in re.findall(rf"(?<![\w/.<-])(?:{FOLDERS})/[\w./*-]*[\w*]", re.sub(r"\]\(\S+\)", "]", ours)):
        yield Reference("file", name)
    for name in re.findall(r"`([\w.-]+\.yaml)`", ours):
        yield Reference("config", name)
    for key in re.findall(rf"(?<![\w./@-])(?:--)?((?:{'|'.join(_sections())})\.[a-z0-9_.]*[a-z0-9])", quoted):
        if not key.endswith(tuple(f".{suffix}" for suffix in SUFFIXES)):
            yield Reference("key", key.replace(".init_args", ""))
    for option in re.findall(r"(?<![\w-])--[a-zA-Z][\w-]*(?![\w-]|\.[a-z])", quoted):
        yield Reference("option", option)
    for name in re.findall(r"`(train/[a-z_]+)`", ours):
        yield Reference("metric", name)
    for target in re.findall(r"(?:^ *|`)make ([a-z-]+)(?=`|$|  )", quoted, flags=re.MULTILINE):
        yield Reference("make target", target)
    for module in re.findall(r"python -m (benchmarks[\w.]*)", quoted):
        yield Reference("module", module)
    for name in re.findall(r"\b[A-Z0-9]+_(?:TABLE|TEXT|FIGURE)\b", text):
        yield Reference("placeholder", name)


def missing(page: Path) -> list[Reference]:
    """References of a page to what does not exist.

    Args:
        page: its file. On a page of a family, keys of `model` and `data` have to be keys of that family.
    """
    text = page.read_text(encoding="utf-8")
    stem = page.stem.replace("-", "_")
    family = next((name for name in FAMILIES if stem == name or stem.startswith(f"{name}_")), None)
    named = [reference for reference in references(text) if page.name != HISTORY or reference.kind == "link"]
    return [reference for reference in named if not _exists(reference, page, family)]


def _exists(reference: Reference, page: Path, family: str | None) -> bool:
    kind, name = reference
    if kind == "link":
        return _leads_somewhere(name, page)
    if kind == "test":
        target, _, test = name.partition("::")
        path = page.parent / target
        match = re.search(rf"^def {test}\(", path.read_text(encoding="utf-8"), re.MULTILINE)
        return bool(match) or test in (path.stem, path.name)
    if kind == "file":
        return bool(re.search(rf"FAMILY|/X\b|/{ADDED}\b", name)) or any(REPOSITORY.glob(name))
    if kind == "config":
        of_a_run = name in ("config.yaml", "config-2.yaml")
        return of_a_run or (REPOSITORY / name).exists() or any(REPOSITORY.glob(f"configs/**/{name}"))
    if kind == "key":
        return name in _keys(family) | GONE
    if kind == "option":
        return name in _options()
    if kind == "metric":
        amount = re.sub(r"train/(\w+)_per_second", r"\1", name)  # callbacks/performance/throughput.py composes these
        return any(f'{key}"' in _source() for key in (name, name.replace("train/", "{stage}/"), f'"{amount}'))
    if kind == "make target":
        return bool(re.search(rf"^{name}:", (REPOSITORY / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    if kind == "module":
        path = REPOSITORY / name.replace(".", "/")
        return path.with_suffix(".py").exists() or (path / "__main__.py").exists()
    return False  # a placeholder for a table that is still missing


def _without_theirs(text: str) -> str:
    """The text without first cells that quote an original guide."""
    for head, *rows in tables(text):
        if THEIRS.match(head[0]):
            for row in (head, *rows):
                text = text.replace(f"\n| {row[0]} | ", "\n| | ", 1)
    return text


def _leads_somewhere(link: str, page: Path) -> bool:
    """Return whether file and heading of a link exist in the repository."""
    name, _, heading = link.partition("#")
    target = (page.parent / name).resolve() if name else page
    if not target.exists() or not (target == page or target.is_relative_to(REPOSITORY)):
        return False
    return not heading or heading in _anchors(target.read_text(encoding="utf-8"))


@cache
def _anchors(text: str) -> set[str]:
    """GitHub's anchors of the headings: lower case, spaces as hyphens, no other punctuation."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.+)$", prose(text), flags=re.MULTILINE):
        name = re.sub(r"[^\w\- ]", "", re.sub(r"\[(.*?)\]\(.*?\)", r"\1", heading).lower()).strip().replace(" ", "-")
        number = 0
        while (anchor := f"{name}-{number}" if number else name) in found:
            number += 1
        found.add(anchor)
    return found


@cache
def _parser():
    return parser_of_all_commands()


@cache
def _keys(family: str | None) -> set[str]:
    return setting_keys(_parser(), family)


@cache
def _options() -> set[str]:
    return option_strings(_parser())


@cache
def _sections() -> list[str]:
    return sorted({key.partition(".")[0] for key in _keys(None) if "." in key})


@cache
def _source() -> str:
    return "".join(p.read_text(encoding="utf-8") for part in SOURCES for p in (REPOSITORY / part).rglob("*.py"))

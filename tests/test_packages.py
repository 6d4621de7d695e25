"""Packages are small and documented, and imports between modules and between packages have no cycle."""

import ast
import re
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests import test_architecture
from tests.conftest import REPOSITORY

PARTS = ("engine", "callbacks", "commands", "lightning_modules", "datamodules")
MOST_MODULES = 15

# Packages that import only those before them in the list, and modules of the part itself where the list has None.
ORDER = {
    "engine": [
        "io",
        "lightning_internals",
        "system",
        "determinism",
        "statistics",
        "distributed",
        "export",
        "telemetry",
        "health",
        "optim",
        "data",
        "checkpointing",
        None,
        "strategies",
    ],
    "callbacks": ["trackers", "logging", "checkpointing", "health", "guards", "performance", "prometheus"],
    "commands": ["launch", "runs", "export", "answers", "demo", "chat", "cli", "doctor", "report", "sweep"],
}


def modules(root: Path = REPOSITORY, parts: tuple[str, ...] = PARTS) -> dict[str, Path]:
    """{dotted name: path} of every module, packages included."""
    paths = [path for part in parts for path in (root / part).rglob("*.py")]
    return {".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): path for path in paths}


def imported(path: Path) -> Iterator[str]:
    """Dotted names of what a module imports, in functions and for types alone, too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def edges(root: Path = REPOSITORY) -> dict[str, set[str]]:
    """{module: modules that it imports}, without packages' own files."""
    known = modules(root, (*PARTS, "benchmarks"))
    plain = {name for name, path in known.items() if path.name != "__init__.py"}
    return {name: {other for other in imported(known[name]) if other in plain} - {name} for name in plain}


def require_no_cycle(graph: dict[str, set[str]]) -> None:
    try:
        tuple(TopologicalSorter(graph).static_order())
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def siblings(graph: dict[str, set[str]], parent: str) -> dict[str, set[str]]:
    """The graph of the packages directly below a package."""

    def child(name: str) -> str | None:
        inside = name.removeprefix(f"{parent}.").split(".") if name.startswith(f"{parent}.") else []
        return inside[0] if len(inside) > 1 else None

    found: dict[str, set[str]] = {}
    for name, others in graph.items():
        if mine := child(name):
            found.setdefault(mine, set()).update(filter(None, map(child, others)))
    return {name: others - {name} for name, others in found.items()}


def test_no_module_imports_itself_by_others():
    require_no_cycle(edges())


def test_no_package_imports_itself_by_its_siblings():
    graph = edges()
    for parent in sorted({name.rpartition(".")[0] for name in modules()} - {""}):
        require_no_cycle(siblings(graph, parent))


@pytest.mark.parametrize("part", ORDER)
def test_packages_import_those_below_them_alone(part):
    graph, order = siblings(edges(), part), ORDER[part]
    assert graph.keys() <= set(order)
    upwards = {(name, other) for name in graph for other in graph[name] if order.index(other) > order.index(name)}
    assert upwards == set()


def test_no_folder_has_more_modules_than_a_reader_takes_in():
    folders = {path.parent for path in [*modules().values(), *(REPOSITORY / "tests").rglob("*.py")]}
    sizes = {folder: len([path for path in folder.glob("*.py") if path.name != "__init__.py"]) for folder in folders}
    assert {str(folder): size for folder, size in sizes.items() if size > MOST_MODULES} == {}


def test_every_package_has_a_docstring():
    silent = [
        name
        for name, path in modules().items()
        if path.name == "__init__.py" and not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert silent == []
    assert all((folder / "__init__.py").is_file() for folder in {path.parent for path in modules().values()})


def test_the_rules_find_what_they_forbid(tmp_path, monkeypatch):
    files = {
        "engine/__init__.py": "",
        "engine/io/first.py": "from engine.system import second",
        "engine/system/second.py": "def later():\n    from engine.io.first import x",
        "benchmarks/one.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from benchmarks import other",
        "benchmarks/other.py": "from benchmarks.one import x",
        **{f"callbacks/guards/guard_{number}.py": "" for number in range(MOST_MODULES + 1)},
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    graph = edges(tmp_path)
    for names in (("engine.io.first", "engine.system.second"), ("benchmarks.one", "benchmarks.other")):
        with pytest.raises(pytest.fail.Exception, match=" -> ".join(names)):
            require_no_cycle({name: graph[name] for name in names})
    with pytest.raises(pytest.fail.Exception):
        require_no_cycle(siblings(graph, "engine"))
    found = modules(tmp_path)
    monkeypatch.setitem(globals(), "modules", lambda *_: found)
    for rule in (
        lambda: test_packages_import_those_below_them_alone("engine"),
        test_no_folder_has_more_modules_than_a_reader_takes_in,
        test_every_package_has_a_docstring,
    ):
        with pytest.raises(AssertionError):
            rule()


def test_parts_are_those_of_the_architecture():
    assert {*PARTS, "train.py"} == {*test_architecture.MAY_IMPORT}


@pytest.mark.parametrize("package", ["checkpointing", "data", "distributed", "health", "optim", "system", "telemetry"])
def test_packages_of_the_engine_state_what_they_import(package):
    folder = REPOSITORY / "engine" / package
    stated = set(
        re.findall(r"`(engine\.\w+)`", ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or "")
    )
    names = {name for path in folder.glob("*.py") for name in imported(path) if name.startswith("engine.")}
    assert {".".join(name.split(".")[:2]) for name in names} - {f"engine.{package}"} == stated

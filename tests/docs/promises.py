"""The tables of tests/README.md: the tests of each promise of the documentation, and the tiers that they run in.

python -m tests.docs.promises    # update the tiers to the markers
"""

import ast
import re
from functools import cache
from typing import NamedTuple

from tests.conftest import REPOSITORY
from tests.docs.pages import read, tables

PAGE = "tests/README.md"
LINK = re.compile(r"\[(test_\w+)\]\(([\w/]+\.py)\)")


class Row(NamedTuple):
    """A promise, the tests that hold it as (file below tests/, name), and the tiers as the page has them."""

    promise: str
    tests: list[tuple[str, str]]
    tiers: list[str]


def promised() -> dict[str, list[str]]:
    """{page: what it promises}: the points of README, the first column of the tables of faults and of symptoms."""
    points = re.findall(r"^- \*\*(.+?)\*\*", read("README.md").partition("## What it promises")[2], flags=re.MULTILINE)
    found = {"README.md": [point.rstrip(".") for point in points]}
    for page in ("docs/reliability.md", "docs/troubleshooting.md"):
        found[page] = [row[0] for table in tables(read(page)) for row in table[1:]]
    return found


def rows() -> dict[str, list[Row]]:
    """{page: rows of its table in tests/README.md}. The head of a table links to the page."""
    found = {}
    for head, *body in tables(read(PAGE)):
        if page := re.search(r"\]\(\.\./([\w/.-]+\.md)", head[0]):
            found[page[1]] = [
                Row(row[0], [(path, name) for name, path in LINK.findall(row[1])], row[2].split("<br>")) for row in body
            ]
    return found


def tier(path: str, name: str) -> str:
    """`slow` for a test whose cases all have the marker `slow`, else `fast`.

    Args:
        path: a file below tests/.
        name: a function of it.

    Raises:
        LookupError: there is no such test.
    """
    module = _module(path)
    marks = {
        target.id: ast.unparse(node.value)
        for node in module.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    tests = [node for node in module.body if isinstance(node, ast.FunctionDef) and node.name == name]
    if not tests:
        raise LookupError(f"tests/{path} has no {name}")
    decorators = tests[0].decorator_list
    slow = "mark.slow" in marks.get("pytestmark", "") or any(_all_slow(decorator, marks) for decorator in decorators)
    return "slow" if slow else "fast"


def _all_slow(decorator: ast.expr, names: dict[str, str]) -> bool:
    """Return whether a decorator makes every case slow. In a list of parameters all must be slow."""
    if not (isinstance(decorator, ast.Call) and ast.unparse(decorator.func).endswith("mark.parametrize")):
        return "mark.slow" in names.get(ast.unparse(decorator), ast.unparse(decorator))
    values = [keyword.value for keyword in decorator.keywords if keyword.arg == "argvalues"] or decorator.args[1:2]
    if isinstance(values[0], ast.Name) and values[0].id in names:
        values = [ast.parse(names[values[0].id], mode="eval").body]
    if isinstance(values[0], ast.ListComp):
        return _is_slow(values[0].elt)
    elements = getattr(values[0], "elts", [])
    return bool(elements) and all(_is_slow(element) for element in elements)


def _is_slow(parameter: ast.expr) -> bool:
    if isinstance(parameter, ast.IfExp):
        return _is_slow(parameter.body) and _is_slow(parameter.orelse)
    if not isinstance(parameter, ast.Call):
        return False
    marks = [ast.unparse(keyword.value) for keyword in parameter.keywords if keyword.arg == "marks"]
    return ast.unparse(parameter.func) == "slow" or any("mark.slow" in mark for mark in marks)


@cache
def _module(path: str) -> ast.Module:
    return ast.parse((REPOSITORY / "tests" / path).read_text(encoding="utf-8"))


def updated() -> str:
    """Return the page with the tiers that follow from the markers."""
    text = read(PAGE)
    for row in (row for table in rows().values() for row in table):
        line = re.search(rf"^\| {re.escape(row.promise)} \| (.*) \| [\w<> ]* \|$", text, flags=re.MULTILINE)
        tiers = "<br>".join(tier(*test) for test in row.tests)
        text = text.replace(line[0], f"| {row.promise} | {line[1]} | {tiers} |")
    return text


if __name__ == "__main__":
    (REPOSITORY / PAGE).write_text(updated(), encoding="utf-8")

"""tests/README.md: every promise, exit code, fault and symptom of the guides has a test, and one in the fast tier."""

import ast
import re
from collections import Counter

import pytest

from tests.docs import promises
from tests.docs.pages import read
from tests.docs.promises import PAGE, promised, rows, tier, updated

ROWS = rows()
SLOW_ALONE: dict[str, str] = {
    "the user has no home directory and no name, as in many containers": "a new process imports everything",
}
"""{promise without a test in the fast tier: why that cannot be}"""

EXAMPLES = """
pytestmark = pytest.mark.timeout(5)
SLOW = pytest.mark.slow
MOST = [slow(1), slow(2)]

def test_plain(): ...

@pytest.mark.slow
@pytest.mark.parametrize("x", [1, 2])
def test_marked(): ...

@SLOW
def test_marked_by_name(): ...

@pytest.mark.parametrize("x", [1, slow(2), pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("y", [slow(1), 2])
def test_one_case_is_fast(): ...

@pytest.mark.parametrize("x", [1, 2])
@pytest.mark.parametrize("y", [slow(1), pytest.param(2, marks=[pytest.mark.slow, pytest.mark.launcher])])
def test_no_case_is_fast(): ...

@pytest.mark.parametrize("x", MOST)
def test_a_list_by_name(): ...

@pytest.mark.parametrize(argnames="x", argvalues=[path if path in FIRST else slow(path) for path in PATHS])
def test_a_computed_list(): ...
"""
TIERS = {
    "plain": "fast",
    "marked": "slow",
    "marked_by_name": "slow",
    "one_case_is_fast": "fast",
    "no_case_is_fast": "slow",
    "a_list_by_name": "slow",
    "a_computed_list": "fast",
}


@pytest.mark.parametrize("page", ["README.md", "docs/reliability.md", "docs/troubleshooting.md"])
def test_every_promise_has_a_row(page):
    named = promised()[page]
    assert len(named) >= 7
    assert max(Counter(named).values()) == 1
    assert [row.promise for row in ROWS[page]] == named


@pytest.mark.parametrize("page", ROWS)
def test_the_tiers_are_those_of_the_markers(page):
    for row in ROWS[page]:
        found = [tier(*test) for test in row.tests]  # raises where there is no such test
        assert found, f"{row.promise}: run `python -m tests.docs.promises`"
        assert row.tiers == found, f"{row.promise}: run `python -m tests.docs.promises`"


def test_every_promise_has_a_test_in_the_fast_tier():
    slow_alone = {row.promise for page in ROWS.values() for row in page if "fast" not in row.tiers}
    assert slow_alone == SLOW_ALONE.keys()


@pytest.mark.parametrize("name", TIERS)
def test_markers_make_a_tier(monkeypatch, name):
    monkeypatch.setattr(promises, "_module", lambda path: ast.parse(EXAMPLES))
    assert tier("a.py", f"test_{name}") == TIERS[name]


def test_a_module_that_is_slow(monkeypatch):
    slow = EXAMPLES.replace("pytest.mark.timeout(5)", "[pytest.mark.slow, pytest.mark.timeout(5)]")
    monkeypatch.setattr(promises, "_module", lambda path: ast.parse(slow))
    assert tier("a.py", "test_plain") == "slow"
    with pytest.raises(LookupError, match="tests/a.py has no test_gone"):
        tier("a.py", "test_gone")


def test_wrong_tiers_are_updated(monkeypatch):
    page = read(PAGE)
    swapped = re.sub(r"\b(fast|slow)(?=(<br>(fast|slow))* \|$)", "slow", page, flags=re.MULTILINE)
    assert swapped != page == updated()
    monkeypatch.setattr(promises, "read", lambda name: swapped if name == PAGE else read(name))
    assert updated() == page

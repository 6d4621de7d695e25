"""Two tiers of tests, and the report that keeps the fast tier fast.

`make test` runs the fast tier, every case that is not marked `slow`; `make test-slow` runs the rest. A case that costs
more than `LIMIT` CPU seconds on an idle core belongs to the slow tier. The CPU seconds are its own and those of the
processes that it starts and waits for; daemons are not counted. A busy machine adds to them much less than to the time
that passes, but it does add: hyperthreads share a core, processes a cache. So every run ends with a report of the cases
over the limit, and where the environment has `CI`, a case that costs `TOLERANCE` times the limit fails the run, unless
`tests/over_the_limit.txt` names it. A line of that file that is no case of the fast tier fails the run, too, so the
file may only shrink.
"""

import gc
import os
import re
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import Any

import psutil
import pytest

FAST, SLOW, GPU = "not slow", "slow", "gpu"

LIMIT = 5.0
"""Most CPU seconds of a case of the fast tier, on an idle core."""

TOLERANCE = 3.0
"""How many times as much a case may cost on a busy or slow machine before it fails the run; 2 were seen."""

SHOWN = 20
"""Cases that the report names."""

KNOWN = Path(__file__).with_name("over_the_limit.txt")
KINDS = {"benchmarks": "benchmark", "docs": "docs", "distributed": "distributed"}
"""Markers that every case below a folder of tests/ gets."""

preloaded: list[psutil.Process] = []
"""Child processes from which the tests' processes are forked."""


def cpu_seconds() -> float:
    """CPU seconds of this process and of those it has waited for, of preloaded processes likewise."""
    own = os.times()
    total = own.user + own.system + own.children_user + own.children_system
    for process in preloaded:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skip the import of files without a case that runs: each worker imports all that it collects."""
    if config.option.markexpr == GPU:
        own = KNOWN.parent / GPU
        return None if collection_path in own.parents or collection_path.is_relative_to(own) else True
    if config.option.markexpr == SLOW and collection_path.name.startswith("test_") and collection_path.suffix == ".py":
        return None if re.search(r"\bslow\b", collection_path.read_text(encoding="utf-8")) else True
    return None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep what the collection imports out of the garbage collector's later searches, each of which takes a second."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the kinds; run first the files that may take longest, so that none is left over when all others are done."""
    longest: dict[Path, float] = {}
    trainings: Counter[Path] = Counter()
    cases = Counter(item.path for item in items)
    for item in items:
        folder = item.path.relative_to(KNOWN.parent).parts[0]
        if folder in KINDS:
            item.add_marker(KINDS[folder])
        limit = item.get_closest_marker("timeout")
        seconds = (float(limit.args[0]) if limit else 0.0) + 1000.0 * bool(item.get_closest_marker("distributed"))
        longest[item.path] = max(longest.get(item.path, 0.0), seconds)
        trainings[item.path] += "lockstep" in getattr(item, "fixturenames", ())
    items.sort(key=lambda item: (-longest[item.path], -trainings[item.path], -cases[item.path]))


def slow(*values: object) -> object:
    """Parameters of a case of the slow tier, whose plainest sibling is fast: ``[1, slow(2), slow(3)]``."""
    return pytest.param(*values, marks=pytest.mark.slow)


_BEFORE = pytest.StashKey[float]()
_SHARED = pytest.StashKey[float]()
_COSTS = pytest.StashKey["Costs"]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Note the CPU seconds before the case's fixtures are set up."""
    item.stash[_BEFORE], item.stash[_SHARED] = cpu_seconds() - _Shared.seconds, _Shared.seconds
    return (yield)


class _Shared:
    """CPU seconds of fixtures that several cases share: no case is charged for being the first to ask for them."""

    seconds = 0.0
    depth = 0


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[object]) -> Generator[None, object, object]:
    """Measure fixtures with a wider scope than a case, those that they ask for included."""
    if fixturedef.scope == "function":
        return (yield)
    before = cpu_seconds()
    _Shared.depth += 1
    try:
        return (yield)
    finally:
        _Shared.depth -= 1
        if not _Shared.depth:
            _Shared.seconds += cpu_seconds() - before


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the case's CPU seconds to the report of its teardown, which travels to the controller of the workers."""
    report = yield
    if report.when == "teardown":
        own, shared = cpu_seconds() - _Shared.seconds - item.stash[_BEFORE], _Shared.seconds - item.stash[_SHARED]
        report.user_properties += [("cpu", round(own, 2)), ("shared", round(shared, 2))]
    return report


class Costs:
    """CPU and wall seconds of each case of a run.

    Args:
        whole: whether the run is of all tests.
    """

    def __init__(self, whole: bool = True) -> None:
        self.whole = whole
        self.cpu: dict[str, float] = {}
        self.wall: dict[str, float] = {}
        self.shared = 0.0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Collect them where the reports of all workers arrive."""
        self.wall[report.nodeid] = self.wall.get(report.nodeid, 0.0) + report.duration
        if report.when == "teardown":
            spent: dict[str, Any] = dict(report.user_properties)
            self.cpu[report.nodeid] = spent["cpu"]
            self.shared += spent["shared"]

    def lines(self) -> list[str]:
        """The report: totals and the most expensive cases."""
        ranked = sorted(self.cpu, key=lambda case: -self.cpu[case])[:SHOWN]
        total = (
            f"{len(self.cpu):,} cases, {sum(self.cpu.values()):,.0f} CPU s, and {self.shared:,.0f} for what they share"
        )
        return [
            f"{total}; the most expensive (CPU s, wall s):",
            *(f"{self.cpu[case]:6.1f} {self.wall[case]:6.1f}  {case}" for case in ranked),
        ]

    def violations(self, known: set[str]) -> list[str]:
        """Return what has to change before the fast tier keeps its budget.

        Args:
            known: cases that are over the limit and may stay so.
        """
        over = {case for case, seconds in self.cpu.items() if seconds > TOLERANCE * LIMIT}
        new = [
            f"{case} costs {self.cpu[case]:.1f} CPU s, the fast tier allows {LIMIT:g}: make it cheaper, or mark it slow"
            for case in sorted(over - known)
        ]
        gone = known - self.cpu.keys() if self.whole else set()
        return [*new, *(f"{KNOWN.name}: remove {case}, which is no case of the fast tier" for case in sorted(gone))]


def known_cases() -> set[str]:
    """Cases over the limit that may stay in the fast tier."""
    lines = KNOWN.read_text(encoding="utf-8").splitlines()
    return {line for line in lines if line and not line.startswith("#")}


def pytest_configure(config: pytest.Config) -> None:
    """Collect the costs in the process that reports, not in its workers."""
    if not hasattr(config, "workerinput"):
        config.stash[_COSTS] = Costs(config.args_source is pytest.Config.ArgsSource.TESTPATHS)
        config.pluginmanager.register(config.stash[_COSTS])


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run of the whole fast tier in CI that has become slower."""
    costs = session.config.stash.get(_COSTS, None)
    if costs and session.config.option.markexpr == FAST and os.environ.get("CI") and costs.violations(known_cases()):
        session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the report after a run of a tier."""
    costs = config.stash[_COSTS]
    if config.option.markexpr not in (FAST, SLOW) or not costs.cpu:
        return
    terminalreporter.section("cost")
    for line in costs.lines():
        terminalreporter.write_line(line)
    if config.option.markexpr == FAST:
        for line in costs.violations(known_cases()):
            terminalreporter.write_line(line, red=True)

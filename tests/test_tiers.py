"""The cost of each case is measured, and an expensive case of the fast tier is reported."""

import subprocess
import sys

import pytest

from tests import tiers
from tests.tiers import LIMIT, TOLERANCE, Costs, cpu_seconds, known_cases

TOO_MUCH = TOLERANCE * LIMIT + 0.1


def costs(**cpu):
    found = Costs()
    for case, seconds in cpu.items():
        report = pytest.TestReport(case, ("f.py", 1, case), {}, "passed", None, "teardown", duration=seconds)
        report.user_properties = [("cpu", seconds), ("shared", 0.5)]
        found.pytest_runtest_logreport(report)
    return found


def test_a_case_over_the_limit_is_reported():
    (line,) = costs(cheap=0.1, near=LIMIT + 1, dear=TOO_MUCH).violations(set())
    assert line == f"dear costs {TOO_MUCH:.1f} CPU s, the fast tier allows 5: make it cheaper, or mark it slow"


def test_a_case_that_is_known_may_cost_more():
    assert costs(dear=TOO_MUCH).violations({"dear"}) == []


def test_a_known_case_that_left_the_fast_tier_is_reported():
    assert costs(cheap=0.1).violations({"gone"}) == [
        "over_the_limit.txt: remove gone, which is no case of the fast tier"
    ]


def test_the_report_begins_with_the_most_expensive():
    total, first, second = costs(cheap=0.1, dear=9.0).lines()
    assert total == "2 cases, 9 CPU s, and 1 for what they share; the most expensive (CPU s, wall s):"
    assert first.split()[-1] == "dear"
    assert second.split()[-1] == "cheap"


def test_a_process_that_a_case_starts_is_counted():
    before = cpu_seconds()
    subprocess.run([sys.executable, "-c", "import time\nwhile time.process_time() < 0.3: pass"], check=True)
    assert cpu_seconds() - before >= 0.25


def test_a_run_measures_its_cases(pytester_folder):
    """pytest itself runs the plugin's hooks, a shared fixture that is charged to no case, and the exit code."""
    (pytester_folder / "test_costs.py").write_text(
        "import time, pytest\n"
        "def spend(seconds):\n"
        "    end = time.process_time() + seconds\n"
        "    while time.process_time() < end: pass\n"
        "@pytest.fixture(scope='module')\n"
        "def shared(): spend(0.4)\n"
        "def test_dear(): spend(0.5)\n"
        "def test_shares(shared): pass\n"
    )
    program = "import sys, pytest, tests.tiers as t; t.LIMIT = 0.1; t.KNOWN = t.Path(sys.argv[1])"
    program += "; sys.exit(pytest.main(['-q', '-m', 'not slow', '-p', 'tests.tiers', '-p', 'no:cacheprovider', '.']))"
    known = pytester_folder / "known.txt"
    known.write_text("# none\n")
    command = [sys.executable, "-c", program, str(known)]
    environment = {"PATH": "", "PYTHONPATH": str(tiers.KNOWN.parents[1]), "CI": "true"}
    run = subprocess.run(command, cwd=pytester_folder, env=environment, capture_output=True, text=True, timeout=60)
    assert run.returncode == 1, run.stdout + run.stderr
    assert "2 passed" in run.stdout, run.stdout + run.stderr
    assert "test_costs.py::test_dear costs 0.5 CPU s, the fast tier allows 0.1" in run.stdout
    assert "test_shares costs" not in run.stdout


@pytest.fixture
def pytester_folder(tmp_path):
    (tmp_path / "setup.cfg").write_text("[tool:pytest]\nmarkers =\n    slow: slow\n")
    return tmp_path


def test_the_list_names_cases():
    assert all("::" in case for case in known_cases())

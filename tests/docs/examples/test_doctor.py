"""docs/doctor.md: its example of a check is added to the machine's checks, and its test passes."""

import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from commands.doctor import machine, machine_checks
from commands.doctor.check import run_checks
from commands.doctor.launch_plan import plan_launch
from tests.conftest import REPOSITORY
from tests.docs.pages import read

FILE, LIST, TEST = re.findall(r"^```python\n(.*?)^```", read("docs/doctor.md"), re.MULTILINE | re.DOTALL)
(LINE,) = re.findall(r"^ +(Check\(.*,)$", LIST, re.MULTILINE)
FIRST = '        Check("python", '


@pytest.fixture
def checks(monkeypatch):
    """Return the checks of the machine with that of the page: {name: check}."""
    scratch = execute("commands.doctor.machine.scratch", FILE)
    monkeypatch.setitem(sys.modules, scratch.__name__, scratch)
    monkeypatch.setattr(machine, "scratch", scratch, raising=False)
    source = Path(machine_checks.__file__).read_text(encoding="utf-8")
    assert FIRST in source
    source += "\n\nfrom commands.doctor.machine import scratch\n"
    extended = execute("extended_machine_checks", source.replace(FIRST, f"        {LINE}\n{FIRST}"))
    return {check.name: check for check in extended.machine_checks(plan_launch([], {}), {})}


def execute(name: str, source: str) -> ModuleType:
    """Return a new module with a source."""
    module = ModuleType(name)
    exec(compile(source, f"docs/doctor.md: {name}", "exec"), vars(module))
    return module


def test_the_check_of_the_page_is_one_of_the_machine(checks):
    check = checks["scratch"]
    assert check.seconds == 5
    (finding,) = run_checks([check])
    assert finding.check == "scratch"
    assert finding.status == ("ok" if Path("/scratch").is_dir() else "warn"), finding


@pytest.mark.parametrize(("name", "text"), [("scratch.py", FILE), ("test_scratch.py", TEST)])
def test_the_files_of_the_page_follow_the_rules_of_style(name, text):
    known = 'lint.isort.known-first-party=["commands"]'  # the files are not in the folders, where ruff looks for them
    command = [sys.executable, "-m", "ruff", "check", "--config", known, "--stdin-filename", f"tests/{name}", "-"]
    checked = subprocess.run(command, input=text, cwd=REPOSITORY, capture_output=True, text=True, timeout=60)
    assert checked.returncode == 0, checked.stdout


def test_the_test_of_the_page_passes(checks, tmp_path):
    execute("test_scratch", TEST).test_a_missing_folder_is_reported(tmp_path)

"""Writes what the tests of a device found into one JSON file, after each test: a run that is cut leaves the others."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

NAME = "tests.json"


class DeviceReport:
    """Collects the outcome of each test and what it measured (`record_property`).

    Args:
        path: file to write.
        around: device, versions and commit, at the top of the file.
    """

    def __init__(self, path: Path, around: dict[str, Any]) -> None:
        self._path, self._around = path, around
        self._tests: dict[str, dict[str, Any]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add a phase of a test; the worst outcome of its phases counts."""
        test = self._tests.setdefault(report.nodeid, {"name": report.nodeid, "outcome": "passed", "seconds": 0.0})
        test["seconds"] = round(test["seconds"] + report.duration, 2)
        if report.outcome != "passed":
            test["outcome"], test["message"] = report.outcome, _message(report)
        if report.when == "teardown":
            test["measured"] = {name: value for name, value in report.user_properties if name not in ("cpu", "shared")}
            self.write()

    def write(self) -> None:
        """Write the file, completely or not at all."""
        tests = list(self._tests.values())
        counts = {kind: sum(test["outcome"] == kind for test in tests) for kind in ("passed", "failed", "skipped")}
        beside = self._path.with_name(f"{self._path.name}.part")
        content = json.dumps({**self._around, **counts, "tests": tests}, indent=1)
        beside.write_text(content + "\n", encoding="utf-8")
        os.replace(beside, self._path)


def _message(report: pytest.TestReport) -> str:
    if isinstance(report.longrepr, tuple):  # of a skipped test: file, line and reason
        return str(report.longrepr[2]).removeprefix("Skipped: ")
    return report.longreprtext

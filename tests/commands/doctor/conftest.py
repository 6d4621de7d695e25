"""Fixtures: the checks of a config, in an empty folder."""

from pathlib import Path

import pytest

from commands.doctor.check import run_checks
from commands.doctor.config_checks import config_checks
from commands.doctor.launch_plan import plan_launch


@pytest.fixture
def doctor(tmp_path, monkeypatch):
    """Return the findings of the checks of a config, in an empty folder: {check: [finding, ...]}."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PL_GLOBAL_SEED", "")
    monkeypatch.setenv("LOCKSTEP_DEBUG", "")

    def look(*arguments, only=None, **environ):
        checks = config_checks(arguments, plan_launch(arguments, environ), environ, Path("runs"))
        by_check = {}
        for finding in run_checks(check for check in checks if only is None or check.name in only):
            by_check.setdefault(finding.check, []).append(finding)
        return by_check

    return look

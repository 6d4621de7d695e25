"""Fixtures: an empty folder of runs, and the lines that a report prints."""

from collections.abc import Callable
from pathlib import Path

import pytest

from commands.report.main import main


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of the runs of an empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path / "runs"


@pytest.fixture
def report_lines(capsys: pytest.CaptureFixture[str]) -> Callable[..., list[str]]:
    """Write a report; return the printed lines without the first, which is the path of the page."""

    def run(*arguments: str) -> list[str]:
        main([*arguments])
        return capsys.readouterr().out.splitlines()[1:]

    return run

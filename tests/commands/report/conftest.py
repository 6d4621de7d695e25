"""Fixtures: an empty folder of runs, the lines that a report prints, and its page in a browser."""

from collections.abc import Callable
from pathlib import Path

import pytest

from commands.report.main import main
from tests.commands.report.shown_page import settle
from tests.support.outputs import browser


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


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    with browser.Browser(tmp_path_factory.mktemp("browser"), (1300, 900)) as page:
        yield page


@pytest.fixture
def show(opened, tmp_path, monkeypatch):
    """Write the page of runs and open it from its file; check for no console error and no network request."""
    monkeypatch.chdir(tmp_path)
    opened.complaints.clear()
    opened.requests.clear()

    def open_page(*folders):
        main([str(folder) for folder in folders] + ["--output", str(tmp_path / "page.html")])
        opened.resize(1300, 900)
        opened.open((tmp_path / "page.html").as_uri())
        settle(opened)
        return opened

    yield open_page
    assert opened.complaints == []
    assert [request for request in opened.requests if not request.startswith(("file:", "data:"))] == []

"""Tests that a line of a rank other than 0 states the rank and its local rank."""

import json
import logging

import pytest

from commands.cli.console_logging import LogSettings, RankFormatter, log_to_console
from tests.conftest import REPOSITORY


@pytest.mark.parametrize(
    ("rank", "variables", "expected"),
    [
        (0, {"LOCAL_RANK": "0"}, "lost: x"),
        (3, {"LOCAL_RANK": "1"}, "[rank 3, local rank 1] lost: x"),
        (3, {"SLURM_LOCALID": "2"}, "[rank 3, local rank 2] lost: x"),
        (3, {}, "[rank 3] lost: x"),
    ],
)
def test_lines_of_other_ranks_begin_with_the_rank(monkeypatch, rank, variables, expected):
    for name in ("LOCAL_RANK", "SLURM_LOCALID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("commands.cli.console_logging.process_rank", lambda: rank)
    record = logging.LogRecord("lockstep", logging.ERROR, __file__, 1, "lost: %s", ("x",), None)
    assert RankFormatter("%(message)s").format(record) == expected


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        (logging.DEBUG, "x"),
        (logging.INFO, "x"),
        (logging.WARNING, "WARNING: x"),
        (logging.ERROR, "x"),
    ],
)
def test_only_warnings_begin_with_their_level(level, expected):
    record = logging.LogRecord("lockstep", level, __file__, 1, "x", (), None)
    assert RankFormatter("%(message)s").format(record) == expected
    assert record.getMessage() == "x", "train.log and log.jsonl have the level in a field of its own"


def test_no_message_repeats_its_level():
    """The console, train.log and log.jsonl state the level of each message."""
    parts = ("callbacks", "commands", "datamodules", "engine", "lightning_modules")
    sources = [path for part in parts for path in (REPOSITORY / part).rglob("*.py")]
    prefixed = [path for path in sources if '"WARNING: ' in path.read_text(encoding="utf-8")]
    assert prefixed == [REPOSITORY / "commands/cli/console_logging.py"]


def test_a_json_line_has_the_local_rank(monkeypatch, capsys):
    log = logging.getLogger("lockstep")
    monkeypatch.setattr(log, "handlers", [])
    for name in ("lightning.pytorch", "lightning.fabric", "py.warnings"):
        monkeypatch.setattr(logging.getLogger(name), "handlers", [])
        monkeypatch.setattr(logging.getLogger(name), "propagate", True)
    monkeypatch.setattr("commands.cli.console_logging.process_rank", lambda: 3)
    monkeypatch.setenv("LOCAL_RANK", "1")
    try:
        log_to_console(LogSettings(console="json"), "a")
        log.error("lost")
    finally:
        logging.captureWarnings(False)
    line = json.loads(capsys.readouterr().err)
    assert (line["rank"], line["local_rank"], line["message"]) == (3, 1, "lost")

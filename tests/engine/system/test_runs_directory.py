"""Tests the options that messages give for a run."""

from pathlib import Path

from engine.system.runs_directory import run_options


def test_messages_name_the_directory_of_a_run_that_is_elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run_options(Path("runs/a")) == run_options(tmp_path / "runs/a") == "--run_name a"
    assert run_options(Path("out/a")) == "--runs out --run_name a"

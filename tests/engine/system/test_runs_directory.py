"""Tests the options that messages give for a run."""

from pathlib import Path

from engine.system.runs_folder import options_of_run


def test_messages_name_the_directory_of_a_run_that_is_elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert options_of_run(Path("runs/a")) == options_of_run(tmp_path / "runs/a") == "--run_name a"
    assert options_of_run(Path("out/a")) == "--runs out --run_name a"

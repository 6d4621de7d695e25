"""Tests how the directory of all runs is determined: by option, variable or default."""

from pathlib import Path

import pytest

from engine.system.runs_folder import options_of_run, runs_folder, runs_of


@pytest.mark.parametrize(
    ("arguments", "environ", "expected"),
    [
        ([], {}, "runs"),
        (["fit", "--run_name", "a"], {"LOCKSTEP_RUNS": ""}, "runs"),
        (["fit"], {"LOCKSTEP_RUNS": "/scratch/a"}, "/scratch/a"),
        (["fit", "--runs", "b", "--run_name", "a"], {}, "b"),
        (["fit", "--runs=b"], {"LOCKSTEP_RUNS": "/scratch/a"}, "b"),
        (["--runs", "b", "--runs", "c"], {}, "c"),
    ],
)
def test_the_option_precedes_the_variable(arguments, environ, expected):
    before = dict(environ)
    with runs_of(arguments, environ) as runs:
        assert runs == runs_folder(environ) == Path(expected)
    assert environ == before


@pytest.mark.parametrize("arguments", [["--runs"], ["--runs="], ["--runs", ""], ["--runs", "--run_name", "a"]])
def test_an_option_without_a_directory_is_refused(arguments):
    with pytest.raises(ValueError, match="^--runs: expected a directory, found nothing"), runs_of(arguments, {}):
        pass


def test_the_variable_is_restored_after_an_error():
    environ = {"LOCKSTEP_RUNS": "a"}
    with pytest.raises(KeyError), runs_of(["--runs", "b"], environ):
        raise KeyError
    assert environ == {"LOCKSTEP_RUNS": "a"}


def test_messages_name_the_directory_of_a_run_that_is_elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert options_of_run(Path("runs/a")) == options_of_run(tmp_path / "runs/a") == "--run_name a"
    assert options_of_run(Path("out/a")) == "--runs out --run_name a"

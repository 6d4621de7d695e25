"""Runs in a directory that `--runs` or LOCKSTEP_RUNS names."""

import os
from pathlib import Path

import pytest

from commands.cli.main import main
from commands.report.main import main as report
from commands.runs.run_names import make_runs_directory
from commands.runs.runs_option import runs_of
from engine.system.runs_directory import runs_directory
from tests.conftest import TINY, Run

NAME = "recommender-quickstart-job1"


def test_commands_find_runs_in_the_named_directory(done, tmp_path, monkeypatch, capsys):
    elsewhere = tmp_path / "scratch"
    (tmp_path / "runs").rename(elsewhere)
    steps = max(Run(elsewhere / NAME).series("train/loss"))
    main(["test", "--runs", str(elsewhere), "--run_name", NAME])  # with the config of the run
    monkeypatch.setenv("LOCKSTEP_RUNS", str(elsewhere))
    limit = ["--trainer.max_steps", str(steps + 2), "--trainer.max_epochs", "-1"]
    main(["fit", "--run_name", NAME, "--ckpt_path", "last", *limit])
    main(["validate", *TINY])  # the newest run of the config
    assert max(Run(elsewhere / NAME).series("train/loss")) == steps + 2
    main(["fit", *TINY, "--runs", "other", "--run_name", "b", "--trainer.max_steps", "2"])
    report([NAME, "../other/b"])
    assert "scratch/report.html" in capsys.readouterr().out
    assert Path("other/.gitignore").read_text() == "*\n"
    assert Path("other/b/.lock").exists()
    assert "runs:" not in Path("other/b/config.yaml").read_text()
    assert os.environ["LOCKSTEP_RUNS"] == str(elsewhere)
    assert not (tmp_path / "runs").exists()


def test_a_run_is_named_in_the_report(tmp_path, capsys):
    with pytest.raises(SystemExit):
        report(["a", "--runs", str(tmp_path / "scratch")])
    assert f"{tmp_path}/scratch/a is not a directory; existing runs: none" in capsys.readouterr().err


def test_a_loop_of_symbolic_links_is_refused(lockstep, tmp_path):
    """`Path.resolve` raises a RuntimeError, which would end in a traceback."""
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    with pytest.raises(OSError, match="a"):
        main(["fit", *TINY, "--runs", "a"])


def test_a_directory_that_cannot_hold_runs_is_refused(lockstep, tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError, match=r"its parent directory absent does not exist: create it, or .* --runs"):
        lockstep("fit", *TINY, "--runs", "absent/runs", name="a")
    with pytest.raises(PermissionError, match=r"^/sys/runs cannot be created \(.*\): name another .* --runs DIR"):
        make_runs_directory(Path("/sys/runs"))
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK | os.X_OK)
    with pytest.raises(PermissionError, match="is not writable: name another directory with --runs DIR"):
        make_runs_directory(tmp_path)


def test_a_config_does_not_name_the_directory(lockstep, tmp_path):
    (tmp_path / "mine.yaml").write_text("runs: /scratch\n")
    with pytest.raises(ValueError, match="^runs: /scratch is in a config; give it as --runs DIR or LOCKSTEP_RUNS=DIR"):
        lockstep("fit", *TINY, "--config", "mine.yaml", name="a")


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
        assert runs == runs_directory(environ) == Path(expected)
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

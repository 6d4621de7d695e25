"""Tests the virtual environments in which the packages of a comparison run."""

import re
import sys

import pytest

from benchmarks.packages import environments
from benchmarks.packages.environments import (
    NotInstalled,
    environment_folder,
    install_environment,
    own_variables,
    python_of,
    requirements_of,
)

# Stands in for Python: `-m venv FOLDER` puts a copy of itself there, `-m pip` does what the test sets.
PYTHON = """#!/bin/sh
echo "$*" >> {log}
case "$2" in
  venv) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
  pip) {pip} ;;
esac
"""


@pytest.fixture
def python(tmp_path, monkeypatch):
    """Makes a stand-in whose pip does that; returns what it was called with."""
    log = tmp_path / "log"

    def make(pip):
        path = tmp_path / "python"
        path.write_text(PYTHON.format(log=log, pip=pip))
        path.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(path))
        return lambda: [line.split()[1] for line in log.read_text().splitlines()]

    return make


def test_an_environment_is_made_once(python, tmp_path):
    called = python("exit 0")
    assert python_of("recbole", tmp_path / "new") is None
    first = install_environment("recbole", tmp_path / "new")
    assert first.exists()
    assert install_environment("recbole", tmp_path / "new") == first == python_of("recbole", tmp_path / "new")
    assert called() == ["venv", "pip"]


def test_the_output_of_pip_is_reported_and_the_next_attempt_starts_anew(python, tmp_path):
    called = python("echo progress >&2; echo 'ERROR: No matching distribution found for ray==2.6.3' >&2; exit 1")
    for _ in range(2):
        with pytest.raises(NotInstalled, match="recbole could not be installed: .*pip install(.|\n)*for ray==2.6.3$"):
            install_environment("recbole", tmp_path)
        assert python_of("recbole", tmp_path) is None
    assert called() == ["venv", "pip"] * 2


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(NotInstalled, match="recbole: no environment in .*file"):
        install_environment("recbole", tmp_path / "file")


def test_other_requirements_are_another_environment(tmp_path, monkeypatch):
    before = environment_folder("recbole", tmp_path)
    monkeypatch.setattr(environments, "requirements_of", lambda package: requirements_of("rectools"))
    assert environment_folder("recbole", tmp_path) != before


def test_this_projects_code_is_not_on_the_path(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    assert "PYTHONPATH" not in own_variables()
    assert own_variables()["OMP_NUM_THREADS"] == "1"


@pytest.mark.parametrize("package", ["recbole", "rectools"])
def test_every_version_is_fixed(package):
    lines = [line for line in requirements_of(package).read_text().splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r"[\w.\[\]-]+==[\w.]+", line) for line in lines)
    names = [re.split(r"==|\[", line)[0] for line in lines]
    assert package in names
    assert "torch" in names

"""Each script of examples/ runs as a reader runs it, for two steps, with its commands in this process."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.support.outputs.jsonl import read_jsonl

SCRIPTS = sorted(path.stem for path in (REPOSITORY / "examples").glob("*.py"))


@pytest.mark.slow
@pytest.mark.parametrize("name", SCRIPTS)
def test_an_example_trains_and_tests(name, tmp_path, monkeypatch):
    from commands.cli.main import main

    commands, run = [], subprocess.run

    def in_process(command, **options):
        if command[0] != sys.executable:  # not of the script: git, which a run asks for the commit
            return run(command, **options)
        _, train, *arguments = command
        assert Path(train) == REPOSITORY / "train.py"
        assert options == {"check": True}
        commands.append(arguments[0])
        return main(arguments)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(subprocess, "run", in_process)
    fast = ["--trainer.max_steps", "2", "--trainer.enable_progress_bar", "false", "--trainer.accelerator", "cpu"]
    monkeypatch.setattr(sys, "argv", [name, *fast])
    runpy.run_path(str(REPOSITORY / f"examples/{name}.py"), run_name="__main__")
    assert commands[-1] in ("test", "predict")
    assert {"fit", "test"} <= set(commands)
    (config,) = (tmp_path / "runs").glob("*/config.yaml")
    records = read_jsonl(config.parent / "metrics.jsonl")
    assert any(key.startswith("test/") for key in records[-1])
    assert max(record["step"] for record in records) == 2


def test_examples_are_listed_and_short():
    text = (REPOSITORY / "examples/README.md").read_text(encoding="utf-8")
    assert len(SCRIPTS) == 5
    for name in SCRIPTS:
        source = (REPOSITORY / f"examples/{name}.py").read_text(encoding="utf-8")
        assert f"[{name}.py]({name}.py)" in text
        assert f"python examples/{name}.py" in source.split('"""')[1]
        assert len(source.splitlines()) <= 110

"""Runs deploy/train_stage.sh in bash, and reads deploy/train_stage.bat, since there is no cmd."""

import re
import shutil
import subprocess

import pytest

from commands.cli.main import main
from tests.conftest import REPOSITORY

SCRIPT = REPOSITORY / "deploy/train_stage.sh"
BATCH = (REPOSITORY / "deploy/train_stage.bat").read_bytes().decode("ascii")
STAGES = ("pretrain", "sft", "one_stage")

needs_bash = pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")


@pytest.fixture
def start(tmp_path):
    """Runs a copy of the script in its own folder, beside a python that records its arguments and ends with 7."""
    copy = tmp_path / "the repository/deploy/train_stage.sh"
    copy.parent.mkdir(parents=True)
    shutil.copy(SCRIPT, copy)
    python = tmp_path / "bin/python"
    python.parent.mkdir()
    python.write_text('#!/bin/bash\nprintf "%s\\n" "$0" "$@" > noted\nexit 7\n')
    python.chmod(0o755)

    def run(*arguments):
        environment = {"PATH": f"{python.parent}:/usr/bin:/bin"}
        command = ["bash", str(copy), *arguments]
        return subprocess.run(
            command, cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60
        )

    return run


@needs_bash
@pytest.mark.parametrize("stage", STAGES)
def test_stage_devices_and_all_other_options_reach_train_py(start, tmp_path, stage):
    repository = tmp_path / "the repository"
    expected = [f"{repository}/train.py", "fit", "--config", f"{repository}/configs/vision_language/{stage}.yaml"]
    others = ["--config", "my data.yaml", "--model.learning_rates={projector: 1e-3, vision: 0}", "--run_name", "a b"]
    done = start(*others[:3], "--stage", stage, *others[3:], "--devices", "4")
    assert (done.returncode, done.stdout, done.stderr) == (7, "", "")
    assert (tmp_path / "noted").read_text().splitlines()[1:] == [*expected, "--trainer.devices", "4", *others]
    assert start(f"--stage={stage}", "--devices=[0, 2]").returncode == 7
    assert (tmp_path / "noted").read_text().splitlines()[1:] == [*expected, "--trainer.devices", "[0, 2]"]
    assert start("--stage", stage).returncode == 7
    assert (tmp_path / "noted").read_text().splitlines()[1:] == [*expected, "--trainer.devices", "auto"]


@needs_bash
def test_the_repositorys_own_environment_comes_first(start, tmp_path):
    own = tmp_path / "the repository/.venv/bin/python"
    own.parent.mkdir(parents=True)
    shutil.copy(tmp_path / "bin/python", own)
    assert start("--stage", "sft").returncode == 7
    assert (tmp_path / "noted").read_text().splitlines()[0] == str(own)


@needs_bash
@pytest.mark.parametrize(
    ("arguments", "messages"),
    [
        ((), "--stage is missing, expected pretrain, sft or one_stage"),
        (("--stage", "align"), "--stage is align, expected pretrain, sft or one_stage"),
        (("--stage",), "--stage needs a value"),
        (("--stage", "sft", "--devices"), "--devices needs a value"),
    ],
)
def test_unsupported_settings_are_reported_and_nothing_starts(start, tmp_path, arguments, messages):
    done = start(*arguments)
    assert (done.returncode, done.stderr) == (2, f"train_stage.sh: {messages}\n")
    assert not (tmp_path / "noted").exists()


@pytest.mark.slow
@needs_bash
@pytest.mark.parametrize("stage", STAGES)
def test_train_py_takes_what_the_script_gives_it(start, stage, tmp_path, monkeypatch, capsys):
    """The arguments, parsed to the end; an option that there is not is its exit code."""
    assert start("--stage", stage, "--devices", "2", "--print_config").returncode == 7
    _, program, *arguments = (tmp_path / "noted").read_text().splitlines()
    assert program == f"{tmp_path / 'the repository'}/train.py"
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as end:
        main([argument.replace(str(tmp_path / "the repository"), str(REPOSITORY)) for argument in arguments])
    output = capsys.readouterr()
    assert not end.value.code, output.err
    assert "class_path: lightning_modules.vision_language.module.VisionLanguageModel" in output.out
    assert re.search(r"^  devices: .?2.?$", output.out, flags=re.MULTILINE)


def test_the_windows_script_starts_the_same_stages():
    assert BATCH.count("\r\n") == BATCH.count("\n"), "cmd misses labels where lines end with a line feed alone"
    lines = BATCH.split("\r\n")
    code = [line for line in lines if not line.startswith("rem")]
    for stage in STAGES:
        assert f'if "%stage%"=="{stage}" goto run' in code
        assert (REPOSITORY / f"configs/vision_language/{stage}.yaml").is_file()
    # shift moves %0: where the script lies must be known before.
    assert code.index('set "repository=%~dp0.."') < code.index("shift")
    (start,) = (line for line in code if "train.py" in line)
    assert start.startswith('"%python%" "%repository%\\train.py" fit --config "%repository%\\configs\\'), start
    assert start.endswith("--trainer.devices %devices% %strategy%%options%")
    assert code[code.index(start) + 1] == "exit /b %errorlevel%", "a command between them would change the exit code"
    labels = {line[1:] for line in code if line.startswith(":")}
    assert set(re.findall(r"goto (\w+)", BATCH)) <= labels
    assert not re.search(r"\b(pause|set /p|choice)\b", BATCH), "it never asks"
    assert "process_group_backend gloo" in BATCH, "there is no NCCL on Windows"

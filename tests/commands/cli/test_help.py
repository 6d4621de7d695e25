"""Tests the help texts of the command line, and the answers to a missing or misspelt command."""

import subprocess
import sys

import pytest

from commands.cli.help import COMMANDS, is_overview, print_overview, unknown_command
from commands.cli.main import LockstepCLI
from tests.conftest import REPOSITORY


def test_every_command_is_in_the_overview(capsys):
    assert set(COMMANDS) == {*LockstepCLI.subcommands(), "doctor", "report", "sweep"}
    assert print_overview(["--help"]) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 120
    assert all(f"\n  {command} " in text for command in COMMANDS)
    assert (REPOSITORY / text.split("--config ")[-1].strip()).exists()


def test_no_command_is_a_wrong_command_line(capsys):
    assert is_overview([])
    assert print_overview([]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "commands:" in printed.err


@pytest.mark.parametrize("arguments", [["fit", "--help"], ["fit"], ["--config", "x.yaml"], ["fot"]])
def test_each_command_has_its_own_help(arguments):
    assert not is_overview(arguments)


@pytest.mark.parametrize(
    ("name", "advice"),
    [("fitt", "did you mean fit?"), ("swep", "did you mean sweep?"), ("x" * 9, "python train.py --help lists them")],
)
def test_a_misspelled_command_is_answered_with_all_commands(name, advice):
    message = unknown_command([name, "--config", "x.yaml"])
    assert message == f"found the command {name!r}, expected one of {', '.join(COMMANDS)}; {advice}"
    assert not any(
        unknown_command(arguments) for arguments in ([], ["--config", "x.yaml"], *([word] for word in COMMANDS))
    )


def printed_with_modules(arguments, names, imported_before=""):
    """What `train.py` prints in a new process, and the modules of these names that it imports."""
    program = (
        "import runpy, sys\n"
        f"{imported_before}\n"
        "before = set(sys.modules)\n"
        f"sys.argv = ['train.py', *{arguments!r}]\n"
        "try:\n    runpy.run_path('train.py', run_name='__main__')\n"
        "except SystemExit as end:\n    assert end.code == 0\n"
        f"print(*sorted(set({names!r}) & set(sys.modules) - before))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True, timeout=120, check=True
    )
    *printed, modules = done.stdout.splitlines()
    return "\n".join(printed), modules.split()


def test_the_overview_imports_nothing_heavy():
    heavy = ["torch", "lightning", "numpy", "jsonargparse", "yaml", "rich"]
    printed, modules = printed_with_modules(["--help"], heavy)
    assert "fit" in printed
    assert modules == []


@pytest.mark.slow
def test_the_help_of_fit_imports_no_package_that_it_does_not_use():
    """Beyond what Lightning itself imports: torchmetrics imports transformers and scipy where they are installed."""
    heavy = "polars pandas transformers peft scipy matplotlib PIL sklearn pyarrow onnx onnxruntime safetensors faiss"
    heavy += " mlflow wandb prometheus_client tensorboard sqlalchemy"
    printed, modules = printed_with_modules(["fit", "--help"], heavy.split(), "import lightning.pytorch")
    assert "--trainer.max_epochs" in printed
    assert modules == []

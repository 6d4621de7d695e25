"""Tests the help texts of the command line, and the answers to a missing or misspelt command."""

import subprocess
import sys

import pytest

from commands.cli.help import COMMANDS, is_overview, print_overview, unknown_command
from commands.cli.main import LockstepCLI
from tests.conftest import REPOSITORY


def test_every_command_is_in_it(capsys):
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


def test_help_imports_nothing_heavy():
    program = (
        "import runpy, sys\n"
        "sys.argv = ['train.py', '--help']\n"
        "try:\n    runpy.run_path('train.py', run_name='__main__')\n"
        "except SystemExit as end:\n    assert end.code == 0\n"
        "print(sorted({'torch', 'lightning', 'numpy', 'jsonargparse', 'yaml', 'rich'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True, timeout=120, check=True
    )
    assert "fit" in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"

"""docs/cluster.md says what exists."""

import re
import shlex

import pytest

from commands.cli import LockstepCLI
from tests.conftest import REPOSITORY

GUIDE = (REPOSITORY / "docs/cluster.md").read_text(encoding="utf-8")
BLOCKS = "\n".join(re.findall(r"^    (.*)$", GUIDE, flags=re.MULTILINE)).replace("\\\n", " ")
COMMANDS = [shlex.split(line, comments=True) for line in BLOCKS.splitlines() if line and not line.startswith("#")]
# What launchers hand to train.py.
TRAINING = [words[words.index("fit") :] for words in COMMANDS if "fit" in words]
TRAINING += [["fit", *words[words.index("deploy/slurm/train.sbatch") + 1 :]] for words in COMMANDS if "sbatch" in words]


def test_commands_are_found():
    assert [words[0] for words in COMMANDS].count("torchrun") == 3
    assert len(TRAINING) == 12


@pytest.mark.parametrize("arguments", TRAINING, ids=" ".join)
def test_the_command_line_takes_it(arguments, monkeypatch, capsys):
    monkeypatch.chdir(REPOSITORY)
    with pytest.raises(SystemExit) as end:
        LockstepCLI([*arguments, "--print_config"])
    assert end.value.code in (0, None), capsys.readouterr().err


def test_torchrun_has_the_options():
    from torch.distributed.run import get_args_parser

    for words in COMMANDS:
        if words[0] == "torchrun":
            assert get_args_parser().parse_args(words[1:]).training_script == "train.py"


def test_accelerate_has_the_options():
    from accelerate.commands.launch import launch_command_parser

    (words,) = [words for words in COMMANDS if words[0] == "accelerate"]
    assert launch_command_parser().parse_args(words[2:]).training_script == "train.py"


def test_files_exist():
    named = re.findall(r"(?:deploy|configs|tests|docs)/[\w/-]+(?:\.[a-z]+)?", GUIDE)
    assert named
    assert [name for name in named if not (REPOSITORY / name).exists()] == []

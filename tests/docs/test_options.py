"""docs/options.md: every common option of `fit` is there, with the default that the program has."""

import inspect
from typing import Any

import pytest
import yaml

from commands.cli.help import COMMANDS
from engine.datamodule import LockstepDataModule
from engine.module import LockstepModule
from tests.docs.pages import read, tables

PAGE = "docs/options.md"
TABLES = {table[0][0]: table for table in tables(read(PAGE))}
ROWS = {row[0].strip("`"): row[1] for table in tables(read(PAGE)) if table[0][0] == "option" for row in table[1:]}
ABSENT = {"print_config", "help", "distributed_debug", "weights_only"}
"""Not settings of a run, deprecated, or Lightning's own with one safe value."""


@pytest.fixture(scope="module")
def defaults(command_line) -> dict[str, Any]:
    """{option: its default}: those of the command line, of LockstepModule and of LockstepDataModule."""
    fit = command_line._subcommands_action._name_parser_map["fit"]
    found = {action.dest: action.default for action in fit._actions if action.option_strings}
    found["best_checkpoint.monitor"] = "required"
    for section, kind in (("model", LockstepModule), ("data", LockstepDataModule)):
        for parameter in list(inspect.signature(kind.__init__).parameters.values())[1:]:
            found[f"{section}.{parameter.name}"] = parameter.default
    return found


def test_every_default_is_that_of_the_program(defaults):
    stated = {option: yaml.safe_load(default.strip("`")) for option, default in ROWS.items()}
    real = {option: defaults[option] for option in ROWS}
    assert stated == {option: list(value) if isinstance(value, tuple) else value for option, value in real.items()}


def test_every_option_of_all_families_is_listed(defaults):
    groups = {option.partition(".")[0] for option in defaults if "." in option}
    ours = {o for o in defaults if o not in groups | ABSENT and not o.startswith("trainer.") and ".help" not in o}
    assert ours - ROWS.keys() == set()


def test_every_command_is_listed():
    listed = " ".join(row[0] for row in TABLES["command"][1:])
    assert [name for name in COMMANDS if f"`{name}`" not in listed] == []

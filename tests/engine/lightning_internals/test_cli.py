"""Tests the contracts of the private hooks of LightningCLI and of argparse."""

import argparse
import inspect

import pytest
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI

from engine.lightning_internals import cli as internals
from tests.engine.lightning_internals.tiny_training import INSTALLED


def test_the_options_of_a_parser_are_found():
    parser = LightningArgumentParser()
    parser.add_argument("--some.option", type=int)
    assert "--some.option" in internals.option_names(parser), INSTALLED
    assert "-h" in internals.option_names(argparse.ArgumentParser()), INSTALLED


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("_setup_parser_kwargs", ["self", "parser_kwargs"]),
        ("_add_subcommands", ["self", "parser", "kwargs"]),
        ("_prepare_subcommand_parser", ["self", "klass", "subcommand", "kwargs"]),
        ("_parse_ckpt_path", ["self"]),
        ("_run_subcommand", ["self", "subcommand"]),
        ("_get", ["self", "config", "key", "default"]),
        ("_parser", ["self", "subcommand"]),
    ],
)
def test_private_methods_that_open_cli_overrides_or_calls_exist(name, parameters):
    method = getattr(LightningCLI, name, None)
    assert method is not None, f"LightningCLI.{name} is gone: {INSTALLED}"
    assert list(inspect.signature(method).parameters) == parameters, INSTALLED

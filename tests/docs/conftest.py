"""Fixtures of the tests of the pages of docs/."""

import pytest

from tests.docs.settings import parser_of_all_commands


@pytest.fixture(scope="session")
def command_line():
    """The parser of all commands, built once."""
    return parser_of_all_commands()

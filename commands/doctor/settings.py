"""The settings of a training as its command line would read them, without a run."""

from functools import cache
from typing import Any

from jsonargparse import Namespace

from commands.cli import LockstepCLI
from commands.parser import LockstepParser


class _Settings(LockstepCLI):
    """Parses what `fit` would, and stops there."""

    @staticmethod
    def subcommands() -> dict[str, set[str]]:
        return {"fit": LockstepCLI.subcommands()["fit"]}  # a parser for each command takes its time

    def parse_arguments(self, parser: LockstepParser, args: Any) -> None:
        self.all_settings = parser
        raise _Built(self)

    @property
    def fit_settings(self) -> LockstepParser:
        return self._parser("fit")


class _Built(Exception):
    """Carries the parser out of Lightning's constructor."""

    def __init__(self, settings: _Settings) -> None:
        self.settings = settings


@cache
def fit_parser() -> LockstepParser:
    """The parser of `train.py fit`; it raises what it would print."""
    try:
        _Settings([])
    except _Built as built:
        settings = built.settings
    for parser in (settings.all_settings, settings.fit_settings):
        parser.exit_on_error = False
    return settings.fit_settings


def parse_fit(arguments: list[str]) -> Namespace:
    """
    Args:
        arguments: of `train.py fit`.

    Raises:
        ArgumentError, ValueError, KeyError, TypeError: what is wrong with them first.
    """
    return fit_parser().parse_args(arguments)

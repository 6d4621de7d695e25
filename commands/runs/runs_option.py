"""Defines and applies `--runs DIR`, which precedes the variable LOCKSTEP_RUNS, for the duration of a command."""

from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from commands.launch.command_line import split_arguments
from engine.system.runs_directory import VARIABLE, runs_directory

OPTION = "--runs"
HELP = f"Folder of all runs. Default: the variable {VARIABLE}, else runs."


@contextmanager
def runs_of(arguments: Sequence[str], environ: MutableMapping[str, str]) -> Iterator[Path]:
    """Set the variable to the directory that a command line names, and restore it afterwards.

    Ranks and loader workers that the command starts inherit the variable.

    Raises:
        ValueError: `--runs` has no value.
    """
    directory = _last_value(arguments)
    before = environ.get(VARIABLE)
    if directory is not None:
        environ[VARIABLE] = directory
    try:
        yield runs_directory(environ)
    finally:
        if directory is not None:
            environ.pop(VARIABLE)
            environ.update({} if before is None else {VARIABLE: before})


def _last_value(arguments: Sequence[str]) -> str | None:
    """Return the last of several values, as argparse does."""
    directory = None
    for argument in split_arguments(arguments, (OPTION,)):
        if argument.option:
            if not argument.value:
                raise ValueError(f"{OPTION}: expected a directory, found nothing")
            directory = argument.value
    return directory

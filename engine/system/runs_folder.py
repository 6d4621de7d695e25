"""Selects the directory of all runs: `--runs DIR`, else the variable LOCKSTEP_RUNS, else `runs`."""

import os
import shlex
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path

OPTION, VARIABLE = "--runs", "LOCKSTEP_RUNS"

_DEFAULT = Path("runs")

HELP = f"Directory of all runs. Default: the variable {VARIABLE}, else runs."


def runs_folder(environ: Mapping[str, str] | None = None) -> Path:
    """Return the directory of all runs, which need not exist.

    Args:
        environ: environment variables; None for `os.environ`.
    """
    return Path((os.environ if environ is None else environ).get(VARIABLE) or _DEFAULT)


def options_of_run(folder: Path) -> str:
    """Return the options that name a run on the command line, for messages."""
    name = f"--run_name {shlex.quote(folder.resolve().name)}"
    runs = shlex.quote(str(folder.parent))
    return name if folder.resolve().parent == _DEFAULT.resolve() else f"{OPTION} {runs} {name}"


@contextmanager
def runs_of(arguments: Sequence[str], environ: MutableMapping[str, str]) -> Iterator[Path]:
    """Set the variable to the directory that a command line names, and restore it afterwards.

    Ranks and loader workers that the command starts inherit the variable.

    Raises:
        ValueError: `--runs` has no value.
    """
    named = _last_value(arguments)
    before = environ.get(VARIABLE)
    if named is not None:
        environ[VARIABLE] = named
    try:
        yield runs_folder(environ)
    finally:
        if named is not None:
            environ.pop(VARIABLE)
            environ.update({} if before is None else {VARIABLE: before})


def _last_value(arguments: Sequence[str]) -> str | None:
    named = None
    for argument, following in zip_longest(arguments, arguments[1:], fillvalue=""):
        option, equals, value = argument.partition("=")
        if option == OPTION:
            # The last of several counts, as for argparse.
            named = value if equals else following
            if not named or (not equals and named.startswith("--")):
                raise ValueError(f"{OPTION}: expected a directory, found nothing")
    return named

"""Outcomes of an input, and the classification of errors as the command line does it."""

from enum import Enum
from pathlib import Path
from typing import NamedTuple

from tests.fuzz.reader import Reader

LONGEST = 3
"""Most lines of a message."""

WIDEST = 2000
"""Most characters of a message: a message of three lines is of no use if a line is a whole file."""


class OutcomeKind(str, Enum):
    """Outcome of an input."""

    RIGHT = "right"
    """The rows equal the reference's rows."""
    REFUSED = "refused"
    """An error of the user's input with a message that names file and location: exit code 2."""
    TRACEBACK = "traceback"
    """Another exception, or a process that a signal ended."""
    SILENT = "silent"
    """Accepted with other rows than the reference's."""
    MESSAGE = "message"
    """An error of the user's input whose message is too long, or does not name file and location."""
    TIME = "time"
    """Too many CPU seconds, or no end."""
    MEMORY = "memory"
    """Too much memory."""


GOOD = (OutcomeKind.RIGHT, OutcomeKind.REFUSED)


class Outcome(NamedTuple):
    """The outcome of an input."""

    kind: OutcomeKind
    detail: str = ""
    seconds: float = 0.0
    megabytes: float = 0.0


def classify(error: BaseException, reader: Reader, path: Path) -> tuple[OutcomeKind, str]:
    """Return the outcome of an error that a reader raised, and why."""
    from engine.distributed.errors import is_user_error

    text = f"{type(error).__name__}: {error}"
    if isinstance(error, SystemExit):
        return (OutcomeKind.REFUSED, text) if error.code == 2 else (OutcomeKind.TRACEBACK, text)
    if isinstance(error, MemoryError):
        return OutcomeKind.MEMORY, text
    if not is_user_error(error):
        return OutcomeKind.TRACEBACK, text
    message = str(error)
    problems = []
    if len(message.splitlines()) > LONGEST or len(message) > WIDEST:
        problems.append(f"{len(message.splitlines())} lines, {len(message):,} characters")
    if not reader.names_file(message, path):
        problems.append("does not name the file")
    if not reader.names_location(message.replace(str(path), ""), path.read_bytes()):
        problems.append("does not name the location")
    return (OutcomeKind.MESSAGE, f"{'; '.join(problems)}: {text[:WIDEST]}") if problems else (OutcomeKind.REFUSED, text)

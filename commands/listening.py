"""What a process does before it imports anything heavy: from its first moment on, signals are heard."""

import sys
from contextlib import AbstractContextManager, nullcontext

from engine.stop_signals import stop_signals

STOPPABLE = ("fit", "validate", "test", "predict")
"""Commands that know safe points to stop at; the others end at once."""


def listen() -> None:
    """For the rest of the process, if its command is one that knows safe points."""
    if sys.argv[1:2] and sys.argv[1] in STOPPABLE:
        stop_signals.listen()


def listening(arguments: list[str]) -> AbstractContextManager[None]:
    """The same for one command in a process that goes on afterwards, as the tests have it."""
    return stop_signals.listening() if arguments and arguments[0] in STOPPABLE else nullcontext()

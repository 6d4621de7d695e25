"""What a process does before it imports anything heavy: from its first moment on, signals are heard."""

import atexit
import signal
import sys
from contextlib import AbstractContextManager, nullcontext

from engine.stop_signals import stop_signals

STOPPABLE = ("fit", "validate", "test", "predict")
"""Commands that know safe points to stop at; the others end at once."""


def listen() -> None:
    """For the rest of the process, if its command is one that knows safe points."""
    if sys.argv[1:2] and sys.argv[1] in STOPPABLE:
        stop_signals.listen()
        atexit.register(_stay_deaf)


def _stay_deaf() -> None:
    """Python takes its handlers away at its very end; a signal would then make a failure of a run that is done."""
    for name in ("SIGTERM", "SIGUSR1"):
        if hasattr(signal, name):  # Windows has no SIGUSR1
            signal.signal(getattr(signal, name), signal.SIG_IGN)


def listening(arguments: list[str]) -> AbstractContextManager[None]:
    """The same for one command in a process that goes on afterwards, as the tests have it."""
    return stop_signals.listening() if arguments and arguments[0] in STOPPABLE else nullcontext()

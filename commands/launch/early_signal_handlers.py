"""Installs signal handlers before the imports, which take seconds and in which a signal would kill the process."""

import atexit
import signal
import sys
from contextlib import AbstractContextManager, nullcontext

from engine.health.signals import stop_signals

STOPPABLE = ("fit", "validate", "test", "predict")
"""Commands that stop at a safe point; the others end at once."""


def install_signal_handlers() -> None:
    """Install the handlers for the rest of the process, if its command stops at safe points."""
    if sys.argv[1:2] and sys.argv[1] in STOPPABLE:
        stop_signals.install_handlers()
        atexit.register(_ignore_signals)


def _ignore_signals() -> None:
    """Ignore signals at exit: Python restores the defaults there, and a signal would fail a finished run."""
    for name in ("SIGTERM", "SIGUSR1"):
        if hasattr(signal, name):  # Windows has no SIGUSR1
            signal.signal(getattr(signal, name), signal.SIG_IGN)


def handling_early_signals(arguments: list[str]) -> AbstractContextManager[None]:
    """Install the handlers for one command, in a process that continues afterwards, as in tests."""
    return stop_signals.handlers_installed() if arguments and arguments[0] in STOPPABLE else nullcontext()

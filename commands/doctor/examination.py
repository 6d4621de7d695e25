"""Runs the checks one after the other; one that raises or hangs is itself a finding, and the others go on."""

import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterable

from commands.doctor.finding import Check, Finding

UNKNOWN = "whether this would stop a training is not known"


def examine(checks: Iterable[Check], on_start: Callable[[Check], None] = lambda check: None) -> list[Finding]:
    """What all checks have found, in their order.

    Args:
        checks: each runs in a thread of its own, as a thread can be left behind when it hangs in a system call.
        on_start: is told of every check before it begins.
    """
    findings: list[Finding] = []
    for check in checks:
        on_start(check)
        findings += _examine(check)
    return findings


def _examine(check: Check) -> list[Finding]:
    found: list[Finding] = []

    def run() -> None:
        try:
            for finding in check.examine():
                found.append(finding)
        except BaseException as error:  # SystemExit is how a command line's parser says no
            if os.environ.get("LOCKSTEP_DEBUG"):
                traceback.print_exception(error, file=sys.stderr)
            words = f"the check ended with {type(error).__name__}: {error}"
            remedy = "LOCKSTEP_DEBUG=1 python train.py doctor  # shows where"
            found.append(Finding(check.name, "fail", words, UNKNOWN, remedy))

    thread = threading.Thread(target=run, name=f"doctor: {check.name}", daemon=True)
    thread.start()
    thread.join(check.seconds)
    if not thread.is_alive():
        return found
    check.give_up()
    if check.late is not None:
        return [*found, check.late]
    words = f"no answer within {check.seconds:g} s"
    why = "what hangs here will hang in a training; " + UNKNOWN
    return [*found, Finding(check.name, "fail", words, why, "look for a file system or a driver that does not answer")]


def left_behind() -> bool:
    """Whether a check still hangs: Python would wait for some of what it does at the end of the process."""
    return any(thread.name.startswith("doctor: ") for thread in threading.enumerate())

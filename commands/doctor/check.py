"""Runs checks and collects their findings: if a check hangs or raises, the others continue."""

import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple

from engine.system.installation import PROGRAM

Status = Literal["ok", "warn", "fail"]

UNKNOWN = "it is not known whether this would stop a training"


class Finding(NamedTuple):
    """Result of a check; a check may have several."""

    check: str
    """Name of the check in two or three words: "shared memory"."""

    status: Status
    """`fail`: a training will stop, hang or be wrong. `warn`: it will be slower, or may stop later. Else `ok`."""

    found: str
    """The finding, with values and units."""

    why: str = ""
    """Why it matters; empty for `ok`."""

    remedy: str = ""
    """Command or setting that fixes it."""


class Check(NamedTuple):
    """Function that examines one thing, with its time limit."""

    name: str
    examine: Callable[[], Iterable[Finding]]
    """Function without arguments. Its inputs are bound to it, so that a test can bind other inputs."""

    seconds: float = 20.0
    """Time limit. A check that exceeds it has failed."""

    late: Finding | None = None
    """Finding for an exceeded time limit; None for a general finding."""

    give_up: Callable[[], None] = lambda: None
    """Called when the time limit is exceeded; removes what the check has created."""


def run_checks(checks: Iterable[Check], on_start: Callable[[Check], None] = lambda check: None) -> list[Finding]:
    """Run the checks in order and return their findings.

    Args:
        checks: each runs in its own thread, because a thread that hangs in a system call can be abandoned.
        on_start: called with each check before it runs.
    """
    findings: list[Finding] = []
    for check in checks:
        on_start(check)
        findings += _run(check)
    return findings


def is_any_hanging() -> bool:
    """Return whether a check still hangs; Python would wait for it at exit."""
    return any(thread.name.startswith("doctor: ") for thread in threading.enumerate())


def _run(check: Check) -> list[Finding]:
    findings: list[Finding] = []

    def run() -> None:
        try:
            for finding in check.examine():
                # Kept one at a time: a check that exceeds its time limit has reported what it found so far.
                findings.append(finding)
        except BaseException as error:  # a command line's parser raises SystemExit
            if os.environ.get("LOCKSTEP_DEBUG"):
                traceback.print_exception(error, file=sys.stderr)
            message = f"the check ended with {type(error).__name__}: {error}"
            remedy = f"LOCKSTEP_DEBUG=1 {PROGRAM} doctor  # shows the traceback"
            findings.append(Finding(check.name, "fail", message, UNKNOWN, remedy))

    thread = threading.Thread(target=run, name=f"doctor: {check.name}", daemon=True)
    thread.start()
    thread.join(check.seconds)
    if not thread.is_alive():
        return findings
    check.give_up()
    if check.late is not None:
        return [*findings, check.late]
    message = f"no answer within {check.seconds:g} s"
    why = f"what hangs here will hang in a training; {UNKNOWN}"
    return [
        *findings,
        Finding(check.name, "fail", message, why, "check for a file system or driver that does not answer"),
    ]

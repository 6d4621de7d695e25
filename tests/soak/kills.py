"""Describes a kill: what is done to a run, and when."""

import os
import random
import signal
import time
from contextlib import suppress
from typing import NamedTuple

from tests.soak.launched_run import LaunchedRun
from tests.soak.trainings import Training
from tests.support.ranks.team import Team

SIGNALS = ("SIGKILL", "SIGKILL", "SIGKILL", "SIGTERM", "SIGINT", "SIGUSR1", "SIGSTOP")
"""SIGKILL is drawn as often as three others, because nothing can handle it."""


class Kill(NamedTuple):
    """A signal to a part of a run.

    Attributes:
        signal: name of the signal.
        victim: number of a process, or -1 for all at once. Process 0 of a launched run is the launcher.
        moment: `start`: within the first second; `training`: at any time until the end; `save`: while a checkpoint is
            written.
        delay: share of the undisturbed run's time after which the signal is sent.
    """

    signal: str
    victim: int
    moment: str
    delay: float


def draw_kill(random_source: random.Random, training: Training) -> Kill:
    """Draw a kill that the training can have."""
    moment = random_source.choice(["training", "training", "training", "save", "start"])
    victim = random_source.choice([-1, *range(training.processes)])
    return Kill(random_source.choice(SIGNALS), victim, moment, random_source.random())


def send(kill: Kill, run: Team | LaunchedRun, seconds: float) -> bool:
    """Wait for the moment and send the signal; return whether a process received it.

    Args:
        kill: what to do.
        run: has just been started.
        seconds: time of an undisturbed run.
    """
    longest = 1.0 if kill.moment == "start" else seconds
    due = run.began + kill.delay * longest
    while time.monotonic() < due:
        time.sleep(0.001)
    checkpoints = run.folder / "checkpoints"
    while kill.moment == "save" and not any(checkpoints.glob(".*.new")):
        if time.monotonic() > run.began + 3 * seconds or not run.survivors:
            return False
        time.sleep(0.001)
    pids = run.pids
    targets = pids if kill.victim == -1 else [pids[min(kill.victim, len(pids) - 1)]]
    received = False
    for pid in targets:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.Signals[kill.signal])
            received = True
    if kill.signal == "SIGSTOP" and len(targets) == len(pids):  # no rank is left to notice it
        time.sleep(0.5)
        for pid in targets:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
    return received

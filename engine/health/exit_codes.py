"""Defines the exit codes of a run. docs/reliability.md lists them for users.

`python train.py doctor` has codes of its own (commands/doctor/findings_output.py).
"""

from enum import IntEnum


class ExitCode(IntEnum):
    """How a run ended, for launchers and scripts."""

    OK = 0
    """The command did what it was asked for: a training has trained all its steps."""

    FAILED = 1
    """The run failed after it started, for example by a non-finite loss. A restart may resume it."""

    USER_ERROR = 2
    """The config, the command line or the data are wrong. argparse uses this code as well.

    The run was refused, or it stopped at a bad sample during a step. A restart would stop at the same sample.
    """

    SIGINT = 130
    """The run was stopped by Ctrl-C and has saved a checkpoint. A shell's code: 128 + the signal's number."""

    SIGTERM = 143
    """The run was stopped by SIGTERM or SIGUSR1 and has saved a checkpoint."""

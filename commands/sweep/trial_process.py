"""Runs the training of a trial in its own process: `train.py fit` with the values of the trial."""

import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from commands.runs.runs_option import OPTION
from commands.sweep.sweep_settings import Value, option_text
from engine.system.installation import PROJECT

_STOP_SECONDS = 600.0
"""Time in which a training that was asked to end saves its checkpoint; then it is killed."""

_READ_BYTES = 1 << 20
"""Largest part of the output that is searched for the error."""


def option_argument(key: str, value: Value) -> str:
    """Return an option of the command line: `--model.init_args.dropout=0.1`."""
    return f"--{key}={option_text(value)}"


def fit_command(arguments: Sequence[str], params: Mapping[str, Value], runs: Path, name: str) -> list[str]:
    """Return the command that trains a trial, or continues it from its newest checkpoint."""
    values = [option_argument(key, value) for key, value in params.items()]
    run_options = [OPTION, str(runs), "--run_name", name, "--ckpt_path", "last"]
    return [sys.executable, str(PROJECT / "train.py"), "fit", *arguments, *values, *run_options]


@contextmanager
def training_lock(path: Path) -> Iterator[int | None]:
    """Lock a file for a training; yield the descriptor, None while another training of the trial runs.

    A training that inherits the descriptor holds the lock from its first instant until it ends, also after SIGKILL of
    the sweep. The lock of its run would not show that: `fit` takes it only after its imports. Ranks do not inherit
    the descriptor. Loader workers do, as they inherit the lock of the run, and end by themselves after the training.

    Args:
        path: file of the lock; created if it does not exist.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
        else:
            yield descriptor
    finally:
        os.close(descriptor)  # the lock stays with a training that has inherited the descriptor


class TrialProcess:
    """A training whose output is appended to a file.

    It has its own process group, so that Ctrl-C in a terminal reaches the sweep alone, which then asks it to end.

    Args:
        command: program and arguments.
        log: file for what it prints.
        lock: descriptor of a file that the caller has locked; see `training_lock`.
    """

    def __init__(self, command: Sequence[str], log: Path, lock: int) -> None:
        self._log, self._begin = log, log.stat().st_size if log.exists() else 0
        with log.open("ab") as file:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=(lock,),
            )

    def wait(self, seconds: float) -> int | None:
        """Return the exit status; None if the training has not ended within some seconds."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def stop(self, number: signal.Signals) -> int:
        """Ask the training to save a checkpoint and to end; return its exit status.

        Args:
            number: SIGTERM, after which a SLURM job is queued again, or SIGINT, after which it is not.
        """
        self._process.send_signal(number)
        code = self.wait(_STOP_SECONDS)
        return self.kill() if code is None else code

    def kill(self) -> int:
        """End the training at once; return its exit status."""
        self._process.kill()
        return self._process.wait()

    def message(self) -> str:
        """Return the error that the training has reported, else the last line that it printed."""
        with self._log.open("rb") as file:
            # A long training prints much, and the error stands at the end.
            file.seek(max(self._begin, self._log.stat().st_size - _READ_BYTES))
            lines = [line.strip() for line in file.read().decode("utf-8", "replace").splitlines() if line.strip()]
        errors = [line.partition("error: ")[2] for line in lines if "error: " in line]
        return (errors[-1] if errors else lines[-1] if lines else "it printed nothing")[:500]

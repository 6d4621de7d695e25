"""A run under a launcher of its own, with the interface of a `Team`."""

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil

from tests.conftest import REPOSITORY, Run

TORCHRUN = [
    "-m",
    "torch.distributed.run",
    "--nproc_per_node",
    "2",
    "--rdzv-backend",
    "c10d",
    "--rdzv-endpoint",
    "localhost:0",
]


class LaunchedRun(Run):
    """A run of two processes that torchrun or Lightning's launcher starts.

    Args:
        launcher: `torchrun` or `lightning`.
        arguments: of train.py.
        folder: working directory.
        run: name of the run.
    """

    def __init__(self, launcher: str, arguments: list[str], folder: Path, run: str) -> None:
        super().__init__(folder / "runs" / run)
        self.began = time.monotonic()
        number = len(list(folder.glob("launch-*")))
        self.outputs = [folder / f"launch-{number}.log"]
        program = [str(REPOSITORY / "train.py"), *arguments, "--run_name", run]
        command = [*TORCHRUN, *program] if launcher == "torchrun" else [*program, "--trainer.devices", "2"]
        with self.outputs[0].open("w") as output:
            self._launcher = subprocess.Popen(
                [sys.executable, *command],
                cwd=folder,
                env={**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(REPOSITORY)},
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._known: dict[int, psutil.Process] = {}

    @property
    def pids(self) -> list[int]:
        """The launcher and the processes that it has started so far and that run train.py."""
        self._look()
        ranks = [process.pid for process in self._known.values() if self._is_rank(process)]
        return [self._launcher.pid, *(pid for pid in ranks if pid != self._launcher.pid)]

    @property
    def survivors(self) -> list[psutil.Process]:
        """Processes of the run that still exist."""
        self._look()
        return [process for process in self._known.values() if _is_alive(process)]

    def end(self, timeout: float) -> list[int | None]:
        """Wait for the launcher and all that it has started; return the launcher's exit code."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline and (self._launcher.poll() is None or self.survivors):
            time.sleep(0.1)
        self.seconds = time.monotonic() - self.began
        return [self._launcher.poll()]

    @property
    def output(self) -> str:
        return self.outputs[0].read_text(errors="replace")

    @output.setter
    def output(self, text: str) -> None:
        """Do nothing: the output is in a file."""

    def close(self) -> None:
        """Kill what is left."""
        for process in self.survivors:
            process.kill()
        self._launcher.wait()

    def _look(self) -> None:
        for parent in (self._launcher.pid, *list(self._known)):
            try:
                family = [psutil.Process(parent), *psutil.Process(parent).children(recursive=True)]
            except psutil.NoSuchProcess:
                continue
            self._known |= {process.pid: process for process in family if process.pid not in self._known}

    @staticmethod
    def _is_rank(process: psutil.Process) -> bool:
        try:
            return any(word.endswith("train.py") for word in process.cmdline()[:3])
        except (psutil.NoSuchProcess, psutil.ZombieProcess):
            return False


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False

"""Train each family for a time and print its resident memory: what a run of days would lose grows in half an hour."""

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from tests.conftest import REPOSITORY, Run
from tests.soak.trainings import Training, trainings

PERIOD = 5.0
"""Seconds between two samples."""

LARGEST_GROWTH = 0.05
"""Growth from the second quarter of the time to the last, as a fraction of the memory, that counts as a leak."""


class Sampled:
    """A training that does not end by itself, and the memory of its process and descendants in MB, at each sample.

    Args:
        training: family and options; its number of steps is not used.
        folder: working directory; it must exist.
    """

    def __init__(self, training: Training, folder: Path) -> None:
        self.name = training.name
        self.memory: list[float] = []
        self.run = Run(folder / "runs" / "a")
        self.output = folder / "output.log"
        options = [*training.options(folder), "--trainer.max_steps", str(10**9)]
        with self.output.open("w") as output:
            self._process = psutil.Popen(
                [sys.executable, str(REPOSITORY / "train.py"), "fit", *options, "--run_name", "a"],
                cwd=folder,
                env={**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def sample(self) -> None:
        """Add a sample.

        Raises:
            RuntimeError: the training has ended.
        """
        if self._process.poll() is not None:
            raise RuntimeError(f"{self.name} ended with {self._process.returncode}:\n{self.output.read_text()[-3000:]}")
        processes = [self._process, *self._process.children(recursive=True)]
        self.memory.append(sum(process.memory_info().rss for process in processes) / 1e6)

    def end(self) -> None:
        """Stop the training as a scheduler does, and wait for it."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(120)

    def quarters(self) -> list[float]:
        """Return the median memory in MB of each quarter of the time."""
        size = len(self.memory) // 4
        return [statistics.median(self.memory[quarter * size : (quarter + 1) * size]) for quarter in range(4)]

    def steps(self) -> int:
        """Return the number of optimizer steps."""
        return int(max(self.run.series("train/loss"), default=0))


def main() -> int:
    """Train the families side by side; return 1 if the memory of any training grew, or if any ended."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.memory", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30, help="time of all trainings, which run side by side")
    parser.add_argument("--only", nargs="*", default=[], help="parts of the names of the trainings to run")
    options = parser.parse_args()
    plain = [training for training in trainings() if training.processes == 1 and not training.variant]
    chosen = [training for training in plain if not options.only or any(part in training.name for part in options.only)]
    with tempfile.TemporaryDirectory(prefix="soak-memory-") as temporary:
        sampled = [_start(training, Path(temporary)) for training in chosen]
        try:
            end = time.monotonic() + options.minutes * 60
            while time.monotonic() < end:
                time.sleep(PERIOD)
                for run in sampled:
                    run.sample()
        finally:
            for run in sampled:
                run.end()
        print(f"{'training':20} {'steps':>9}   median MB of each quarter of {options.minutes:g} minutes {'growth':>10}")
        return max(_report(run) for run in sampled)


def _start(training: Training, folder: Path) -> Sampled:
    own = folder / training.name
    own.mkdir()
    return Sampled(training, own)


def _report(one: Sampled) -> int:
    quarters = one.quarters()
    growth = quarters[3] / quarters[1] - 1
    print(f"{one.name:20} {one.steps():9}   {'  '.join(f'{value:9.1f}' for value in quarters)} {growth:14.1%}")
    return int(growth > LARGEST_GROWTH)


if __name__ == "__main__":
    sys.exit(main())

"""Kills a training again and again, resumes it, and compares the result with an undisturbed run."""

import random
import signal
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import torch

from commands.launch.rendezvous_store import TIMEOUT
from engine.checkpointing.verification import load_lazily
from tests.soak.kills import Kill, draw_kill, send
from tests.soak.launched_run import LaunchedRun
from tests.soak.trainings import LIMITS, Training
from tests.support.outputs.jsonl import read_jsonl
from tests.support.ranks.team import ForkServer, Team

HANG = TIMEOUT + 60.0
"""Seconds after a kill in which all processes must have ended; before they are connected they wait for `TIMEOUT`."""


@dataclass
class Result:
    """Outcome of a training.

    Attributes:
        kills: signals that a process received.
        hangs: starts whose processes were still there after `HANG` seconds.
        differing: steps whose loss differs from the undisturbed run's, is missing or is there twice.
        faults: what was wrong, for the report.
    """

    kills: list[Kill] = field(default_factory=list)
    hangs: int = 0
    differing: int = 0
    faults: list[str] = field(default_factory=list)


class Campaign:
    """Disturbs runs of a training.

    Args:
        fork_server: starts processes.
        training: what is trained.
        folder: empty; holds the runs.
    """

    def __init__(self, fork_server: ForkServer, training: Training, folder: Path) -> None:
        self.fork_server, self.training, self.folder = fork_server, training, folder
        self.options = ["fit", *training.options(folder), *LIMITS, "--ckpt_path", "last"]
        whole = self._start("undisturbed")
        codes = whole.end(300)
        if set(codes) != {0}:
            raise RuntimeError(f"the undisturbed run of {training.name} ended with {codes}\n{whole.output}")
        self.whole, self.seconds = whole, max(1.0, whole.seconds)

    def _start(self, name: str) -> Team | LaunchedRun:
        if self.training.launcher is not None:
            return LaunchedRun(self.training.launcher, self.options, self.folder, name)
        return Team(self.fork_server, self.options, self.folder, name, processes=self.training.processes)

    def run(self, name: str, kills: int, random_source: random.Random) -> Result:
        """Start a run until it has received `kills` kills or has ended, then let it end, and compare."""
        result = Result()
        finished = False
        while len(result.kills) < kills and not finished:
            run = self._start(name)
            try:
                kill = draw_kill(random_source, self.training)
                if send(kill, run, self.seconds):
                    result.kills.append(kill)
                codes = self._wait(run, kill, result)
            finally:
                run.close()
            finished = set(codes) == {0}
        if not finished:
            run = self._start(name)
            codes = list(run.end(300))
            run.close()
            if set(codes) != {0}:
                result.faults.append(f"the last start ended with {codes}\n{run.output}")
                return result  # it may have left nothing to compare
        self._compare(run, result)
        return result

    def _wait(self, run: Team | LaunchedRun, kill: Kill, result: Result) -> list[int | None]:
        """Wait for all processes but stopped processes, which only a launcher could end."""
        run.end(0.2)
        codes: list[int | None] = []
        limit = HANG
        while limit > 0:
            codes = list(run.end(1.0))
            left = [process for process in run.survivors if _state(process) != psutil.STATUS_STOPPED]
            if not left:
                break
            limit -= 1.0
        else:
            result.hangs += 1
            result.faults.append(f"{kill}: still there after {HANG:.0f} s: {run.survivors}\n{run.output}")
        for process in run.survivors:
            process.send_signal(signal.SIGKILL)
        return codes

    def _compare(self, run: Team | LaunchedRun, result: Result) -> None:
        ours, theirs = _losses(run.folder), _losses(self.whole.folder)
        steps = sorted({step for step, _ in (*ours, *theirs)})
        actual, expected = _by_step(ours), _by_step(theirs)
        differing = [step for step in steps if actual.get(step) != expected.get(step)]
        if differing:
            first = differing[0]
            result.differing += len(differing)
            result.faults.append(f"step {first}: {actual.get(first)}, expected {expected.get(first)}\n{run.output}")
        files = [trained.folder / "checkpoints/last.ckpt" for trained in (run, self.whole)]
        if any(file.is_dir() for file in files):  # shards; the losses of the last steps depend on all weights
            return
        weights, undisturbed = (load_lazily(file)["state_dict"] for file in files)
        changed = [name for name, weight in undisturbed.items() if not torch.equal(weight, weights[name])]
        if changed:
            result.differing += 1
            result.faults.append(f"weights differ: {changed[:3]}\n{run.output}")


def _losses(folder: Path) -> list[tuple[int, float]]:
    records = read_jsonl(folder / "metrics.jsonl")
    return [(record["step"], record["train/loss"]) for record in records if "train/loss" in record]


def _by_step(losses: list[tuple[int, float]]) -> dict[int, list[float]]:
    found: dict[int, list[float]] = {}
    for step, loss in losses:
        found.setdefault(step, []).append(loss)
    return found


def _state(process: psutil.Process) -> str:
    try:
        return process.status()
    except psutil.NoSuchProcess:
        return psutil.STATUS_ZOMBIE

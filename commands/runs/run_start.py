"""Starts a command in a run directory: selects the directory and the checkpoint, and locks the directory."""

import logging
import os
from collections.abc import MutableMapping, Sequence
from pathlib import Path

from filelock import BaseFileLock

from commands.launch.rank_zero_decision import decide_on_rank_zero
from commands.launch.restart_detection import is_restart
from commands.runs.checkpoint_selection import (
    earlier_stage,
    newest_checkpoint_since_start,
    record_existing_checkpoints,
    resolve_checkpoint,
)
from commands.runs.run_directory import newest_run, refuse_occupied, remove_untrained_run
from commands.runs.run_lock import lock_run, record_end, record_start
from commands.runs.run_names import (
    check_directory,
    check_run_name,
    claim_run_name,
    experiment_stem,
    in_slurm_job,
    is_of_a_run,
    make_runs_directory,
)
from engine.checkpointing.discovery import CHECKPOINTS
from engine.telemetry.log_events import event

log = logging.getLogger("lockstep")


class RunStart:
    """Run directory of a command, from its selection until the command has ended.

    Every rank has a RunStart. Rank 0 reads the file system, and the other ranks receive its decisions.

    Args:
        command: `fit`, `validate`, `test`, `predict`, `export`, `demo` or `chat`.
        runs: directory of all runs.
        environ: environment variables, of which a launcher sets some.
    """

    def __init__(self, command: str, runs: Path, environ: MutableMapping[str, str] = os.environ) -> None:
        self.resumes = False
        """Whether a `fit` may continue a run; known on rank 0."""
        self._command, self._runs, self._environ = command, runs, environ
        # Set on rank 0 alone.
        self._lock: BaseFileLock | None = None
        self._created: Path | None = None
        self._recorded: Path | None = None

    def select_directory(self, run_name: str | None, configs: Sequence[Path], ckpt_path: str | None) -> Path:
        """Return the run directory, which need not exist yet.

        Args:
            run_name: `--run_name`.
            configs: files of `--config`.
            ckpt_path: `--ckpt_path`.

        Raises:
            ValueError: the name is a path, or `--ckpt_path last` does not determine a run.
            FileNotFoundError: an evaluation finds no run of its configs.
        """
        return self._runs / self._select_name(run_name, configs, ckpt_path)

    def select_checkpoint(self, ckpt_path: str | None, directory: Path) -> str | None:
        """Return the checkpoint that the command begins with; `fit` also claims the directory.

        Raises:
            FileNotFoundError, FileExistsError, BlockingIOError, CorruptCheckpointError: on every rank.
        """
        return decide_on_rank_zero("checkpoint", lambda: self._start(ckpt_path, directory)) or None

    def select_initial_weights(self, init_from: str, checkpoint: str | None) -> str | None:
        """Return the checkpoint of an earlier stage; None for a run that has its own weights."""
        if self._command != "fit" or checkpoint:
            return None
        return decide_on_rank_zero("init_from", lambda: str(earlier_stage(init_from, self._runs)))

    def remove_if_created(self) -> None:
        """Remove the directory if this process created it and training has not started."""
        if self._created is not None:
            remove_untrained_run(self._created)

    def close(self) -> None:
        """Release the directory once the command has ended."""
        if self._recorded is not None:
            record_end(self._recorded)
        if self._lock is not None:
            self._lock.release()

    def _select_name(self, run_name: str | None, configs: Sequence[Path], ckpt_path: str | None) -> str:
        if run_name is not None:
            check_run_name(run_name)
            return run_name
        starts_new = self._command == "fit" and ckpt_path != "last"
        for path in configs:
            if is_of_a_run(path, self._runs) and not starts_new:
                return path.resolve().parent.name
        stem = experiment_stem(configs, self._runs) if configs else "run"
        if self._command != "fit" and ckpt_path in ("best", "last"):
            return decide_on_rank_zero("run_name", lambda: newest_run(stem, self._runs), keep=True)
        # A job and torchrun repeat the command after a restart, and the default name then is the same.
        restarts = in_slurm_job(self._environ) or "TORCHELASTIC_RUN_ID" in self._environ
        if ckpt_path == "last" and not restarts:
            raise ValueError(f"--ckpt_path last: of which run? Add --run_name NAME, a directory in {self._runs}/")
        return decide_on_rank_zero("run_name", lambda: self._claim_name(stem), keep=True)

    def _claim_name(self, stem: str) -> str:
        name = claim_run_name(stem, self._runs, self._environ)
        if not in_slurm_job(self._environ):  # a job's directory may exist since before a requeue
            self._created = self._runs / name
        return name

    def _start(self, ckpt_path: str | None, directory: Path) -> str:
        """Select the checkpoint, and prepare the directory; on rank 0 alone."""
        if self._command != "fit":
            evaluated = resolve_checkpoint(ckpt_path, directory)
            if self._command != "export" and not directory.exists():  # an evaluation with a name of its own
                make_runs_directory(self._runs)
            return str(evaluated or "")
        restarted = is_restart(self._environ)
        self.resumes = restarted or ckpt_path == "last"
        newest = _resume_after_restart(directory) if restarted else None
        checkpoint = newest or resolve_checkpoint(ckpt_path, directory)
        if not checkpoint:
            refuse_occupied(directory)
        self._claim_directory(directory)
        if not restarted:
            record_existing_checkpoints(directory)
        record_start(directory)
        self._recorded = directory
        return str(checkpoint or "")

    def _claim_directory(self, directory: Path) -> None:
        """Create the directory unless it exists, and lock it.

        The other ranks wait for the decision of rank 0, so that a refusal ends them, too.
        """
        check_directory(directory)
        check_directory(directory / CHECKPOINTS)  # before hours of training that cannot be saved
        if not directory.exists():
            make_runs_directory(self._runs)
        created = directory == self._created or not directory.exists()
        self._lock = lock_run(directory)
        self._created = directory if created and self._lock is not None else None


def _resume_after_restart(directory: Path) -> Path | None:
    """Return the newest checkpoint of the run itself; None to begin as the command states, which a launcher repeats."""
    newest = newest_checkpoint_since_start(directory)
    outcome = f"resuming from {newest}" if newest else "nothing has been saved, so the run begins as before"
    log.info("restarted by the launcher: %s", outcome, extra=event("run_restarted", path=newest and f"{newest}"))
    return newest

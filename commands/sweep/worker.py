"""Runs trials of a study one after another, until none is left or the worker is asked to end."""

import re
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from optuna.trial import TrialState

from commands.runs.run_lock import BUSY
from commands.sweep.study import Claim, SweepStudy, is_locked
from commands.sweep.sweep_settings import SweepSettings
from commands.sweep.trial_process import TrialProcess, fit_command, training_lock
from commands.sweep.validation_history import ValidationHistory
from engine.health.exit_codes import ExitCode

_POLL = 0.5  # polling interval in seconds, for metrics and signals
_MAX_KILLS = 3
"""Kills of a training from outside, with no new validation between them, after which its trial fails."""

_STOPPED = (ExitCode.SIGINT, ExitCode.SIGTERM)


class SweepStopped(Exception):
    """A stop signal was received; the training has saved its checkpoint.

    Args:
        number: number of the signal.
        in_training: whether it stopped a training, too; under SLURM that training requeues the job.
    """

    def __init__(self, number: int, in_training: bool = False) -> None:
        super().__init__(number)
        self.in_training = in_training
        self.number = number


class MissingMetricError(ValueError):
    """No validation logs the metric of the study, so no trial can be compared. The message lists the logged metrics."""


class RefusedSettingsError(ValueError):
    """A training has refused settings that no parameter of the study changes, so it would refuse every trial."""


class Worker:
    """One worker of a study.

    Args:
        study: the study.
        settings: content of SWEEP.yaml.
        arguments: options of every trial: `--config X ...`.
        folder: folder of the study, in which the trials' runs are.
        report: prints a line.
        command: returns the command of a trial; tests give another than `fit`.
    """

    def __init__(
        self,
        study: SweepStudy,
        settings: SweepSettings,
        arguments: Sequence[str],
        folder: Path,
        report: Callable[[str], None],
        command: Callable[[Claim], Sequence[str]] | None = None,
    ) -> None:
        self._study, self._settings, self._folder, self._report = study, settings, folder, report
        self._command = command or (lambda claim: fit_command(arguments, claim.params, folder, claim.name))
        self.received = 0
        """Number of the signal that asks the worker to end; 0 before a signal."""

    def run(self, after_trial: Callable[[int], None]) -> None:
        """Run trials until the study has no further trial.

        Args:
            after_trial: called with the number of a trial that has ended.

        Raises:
            SweepStopped: a signal was received. The next start continues the trial.
            MissingMetricError: two validations of a trial, or its only validation, have not logged the metric.
            RefusedSettingsError: the first training of the study has refused settings that all trials have.
        """
        while (claim := self._claim()) is not None:
            if claim.is_resumed:
                self._report(f"trial {claim.number}: continues")
            try:
                self._run(claim)
            except BaseException:
                self._study.release(claim)
                raise
            after_trial(claim.number)

    def _claim(self) -> Claim | None:
        self._stop_if_asked()
        return self._study.claim()

    def _stop_if_asked(self) -> None:
        if self.received:
            raise SweepStopped(self.received)

    def _run(self, claim: Claim) -> None:
        metrics, values = self._folder / claim.name / "metrics.jsonl", self._study.values(claim.number)
        history, validations, kills = ValidationHistory(metrics, self._settings.metric, values), len(values), 0
        if values and self._study.must_prune(claim.number):  # a kill came before the state was stored
            with self._training_lock(claim):
                self._finish(claim, ExitCode.OK, True, history, "")
            return
        while True:
            with self._training_lock(claim) as lock:
                process = TrialProcess(self._command(claim), self._folder / f"{claim.name}.log", lock)
            code, is_pruned = self._watch(process, claim.number, history)
            error = "" if is_pruned or code == ExitCode.OK else process.message()
            if error.startswith(BUSY):  # a `fit` by hand; the next turn waits for it
                self._stop_if_asked()
                continue
            if is_pruned or (code >= 0 and code not in _STOPPED):
                break
            self._stop_if_asked()  # SLURM sends a signal to all processes of a job
            has_progressed, validations = len(history.values) > validations, len(history.values)
            kills = 1 if has_progressed else kills + 1
            fails = kills == _MAX_KILLS
            outcome = (
                f"it fails after {kills} kills without progress" if fails else "it continues from its last checkpoint"
            )
            self._report(f"trial {claim.number}: {_death(code)} from outside; {outcome}")
            if fails:
                break
        self._finish(claim, code, is_pruned, history, error)
        if code == ExitCode.USER_ERROR and not is_pruned:
            self._require_acceptable(claim, error)

    def _require_acceptable(self, claim: Claim, error: str) -> None:
        """Raise RefusedSettingsError if a refusal is about no parameter and no trial has been accepted so far."""
        names = {name for key in claim.params for name in (key, key.rpartition(".")[2])}
        is_of_trial = any(re.search(rf"\b{re.escape(name)}\b", error) for name in names)
        if not is_of_trial and not any(self._study.values(trial.number) for trial in self._study.trials()):
            raise RefusedSettingsError(
                f"trial {claim.number} is refused, as every trial would be: {error}\n"
                f"See {self._folder / claim.name}.log; correct the setting, and start the study anew: another "
                f"--run_name, or without {self._folder}"
            )

    def _watch(self, process: TrialProcess, number: int, history: ValidationHistory) -> tuple[int, bool]:
        """Return the exit status of a training, and whether it was pruned."""
        try:
            while True:
                code = process.wait(_POLL)
                for step, value in history.read_new():
                    self._study.store_value(number, step, value)
                    if self._study.must_prune(number):
                        # Values after the pruned step, read in the same poll, must not become the trial's best value.
                        del history.values[next(i for i, (at, _) in enumerate(history.values) if at == step) + 1 :]
                        # SIGTERM is not sent: after it, a training in a SLURM job queues the job again.
                        return (process.stop(signal.SIGINT) if code is None else code), True
                # While the training runs, the metrics of the newest step may not all be written yet.
                if len(history.steps) > (code is None):
                    self._require_metric(history)
                if code is not None:
                    return code, False
                if self.received:
                    stopped = process.stop(signal.Signals(self.received)) != ExitCode.OK
                    raise SweepStopped(self.received, in_training=stopped)
        except SweepStopped:
            raise
        except MissingMetricError:
            process.stop(signal.SIGINT)
            raise
        except BaseException:  # the study cannot be written, or a second Ctrl-C
            process.kill()
            raise

    def _require_metric(self, history: ValidationHistory) -> None:
        metric = self._settings.metric
        if metric not in history.others and not history.values:
            found = ", ".join(sorted(history.others))
            raise MissingMetricError(f"metric: no validation logs {metric}; it logs {found}")

    def _finish(self, claim: Claim, code: int, is_pruned: bool, history: ValidationHistory, error: str) -> None:
        metric, values = self._settings.metric, history.values
        if not is_pruned and code != ExitCode.OK:
            ended = _death(code) if code < 0 or code in _STOPPED else error
            self._study.finish(claim, TrialState.FAIL, None, None, ended)
        elif not values:
            found = ", ".join(sorted(history.others)) or "none"
            message = f"no value of {metric} was logged; metrics of the validation: {found}"
            self._study.finish(claim, TrialState.FAIL, None, None, message)
        else:
            best = self._settings.best([value for _, value in values])
            step = next(step for step, value in values if value == best)
            self._study.finish(claim, TrialState.PRUNED if is_pruned else TrialState.COMPLETE, best, step)

    @contextmanager
    def _training_lock(self, claim: Claim) -> Iterator[int]:
        """Yield the descriptor of the lock of a trial's training, as soon as no other training of the trial runs."""
        is_reported = False
        while True:
            with training_lock(self._folder / f"{claim.name}.training.lock") as lock:
                # The second lock is also held by a `fit` that a user has started in the run of the trial.
                if lock is not None and not is_locked(self._folder / claim.name / ".lock"):
                    yield lock
                    return
            if not is_reported:
                self._report(f"trial {claim.number}: waiting for the training that a killed start has left")
                is_reported = True
            self._stop_if_asked()
            time.sleep(_POLL)


def _death(code: int) -> str:
    number = -code if code < 0 else {ExitCode.SIGINT: signal.SIGINT, ExitCode.SIGTERM: signal.SIGTERM}[ExitCode(code)]
    return f"ended by {signal.Signals(number).name}"

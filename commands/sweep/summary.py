"""Writes the summary of a study for the report, and prints its trials and the command of the best."""

import json
import shlex
from collections.abc import Sequence
from pathlib import Path

from optuna.trial import FrozenTrial, TrialState

from commands.report.study_summary import SUMMARY, StudySummary, TrialSummary
from commands.sweep.study import MESSAGE, STEP, SweepStudy, trial_name
from commands.sweep.sweep_settings import SweepSettings
from commands.sweep.trial_process import option_argument
from engine.io.atomic_file import write_atomically
from engine.io.html_page import replace_non_finite
from engine.system.installation import PROGRAM
from engine.system.runs_directory import run_options

_STATES = {
    TrialState.COMPLETE: "complete", TrialState.PRUNED: "pruned", TrialState.FAIL: "failed",
    TrialState.RUNNING: "running", TrialState.WAITING: "running",
}  # fmt: skip


def summarize(study: SweepStudy, settings: SweepSettings, arguments: Sequence[str], folder: Path) -> StudySummary:
    """Return the summary of a study.

    Args:
        study: the study.
        settings: content of SWEEP.yaml.
        arguments: options of every trial.
        folder: folder of the study.
    """
    trials = [_trial(trial) for trial in study.trials()]
    summary = StudySummary(
        settings.metric, settings.direction, [parameter._asdict() for parameter in settings.parameters], trials, ""
    )
    if summary.best is None:
        return summary
    values = [option_argument(key, value) for key, value in summary.best.params.items()]
    words = ["fit", *arguments, *values, *shlex.split(run_options(folder.with_name(f"{folder.name}-best")))]
    return summary._replace(command=f"{PROGRAM} {shlex.join(words)}")


def write_summary(summary: StudySummary, folder: Path) -> None:
    """Write study.json into the folder of a study, whose lock the caller holds."""
    text = json.dumps(replace_non_finite(summary.fields()), ensure_ascii=False, indent=1, allow_nan=False)
    content = (text + "\n").encode("utf-8", "replace")
    write_atomically(folder / SUMMARY, content)


def describe_trial(trial: TrialSummary) -> str:
    """Return a line on a trial: `trial 3: 0.4123 at step 200 (learning_rate 0.0012, dropout 0.1)`."""
    values = ", ".join(f"{key.rpartition('.')[2]} {_shorten_value(value)}" for key, value in trial.params.items())
    reached = "" if trial.value is None else f"{trial.value:.6g} at step {trial.step}"
    how = {"complete": reached, "pruned": f"pruned, {reached}", "failed": f"failed: {trial.message}"}
    return f"trial {trial.number}: {how.get(trial.state, 'not finished')} ({values})"


def _shorten_value(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _trial(trial: FrozenTrial) -> TrialSummary:
    attributes, state = trial.user_attrs, _STATES[trial.state]
    values = [trial.value] if trial.values else []
    return TrialSummary(
        number=trial.number,
        name=trial_name(trial.number),
        state=state,
        value=values[0] if values else None,
        step=attributes.get(STEP),
        params=trial.params,
        message=attributes.get(MESSAGE, ""),
    )

"""Reads the summary of a hyper-parameter search, study.json, which `sweep` writes after each trial."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from engine.io.json_records import describe_value, parse_json
from engine.number_check import is_number

SUMMARY = "study.json"

STATES = ("complete", "pruned", "failed", "running")


class TrialSummary(NamedTuple):
    """Outcome of a trial: its parameters, and the best value of the metric so far; None before the first validation."""

    number: int
    name: str  # of its run in the study's folder
    state: str  # one of STATES
    value: float | None  # best value of the metric
    step: int | None  # optimizer step of that value
    params: Mapping[str, Any]
    message: str = ""  # why it failed


class StudySummary(NamedTuple):
    """A hyper-parameter search."""

    metric: str
    direction: str  # maximize or minimize
    parameters: Sequence[Mapping[str, Any]]  # fields of commands.sweep.sweep_settings.Parameter
    trials: Sequence[TrialSummary]
    command: str  # trains the best trial again; empty without a complete trial

    @property
    def best(self) -> TrialSummary | None:
        """The complete trial with the best value, the first of equal values; None without a complete trial."""
        complete = [trial for trial in self.trials if trial.state == "complete" and trial.value is not None]
        if not complete:
            return None
        sign = 1 if self.direction == "maximize" else -1
        return max(complete, key=lambda trial: (sign * (trial.value or 0.0), -trial.number))

    def fields(self) -> dict[str, Any]:
        """Return the content of study.json."""
        return {**self._asdict(), "trials": [trial._asdict() for trial in self.trials]}

    def for_page(self) -> dict[str, Any]:
        """Return what the page reads: the fields, and the number of the best trial."""
        return {**self.fields(), "best": None if self.best is None else self.best.number}


def read_study(folder: Path) -> StudySummary:
    """Read the summary of a study.

    Raises:
        ValueError: study.json is malformed.
        OSError: it cannot be read.
    """
    path = folder / SUMMARY
    try:
        content = parse_json(path.read_bytes())
        trials = [TrialSummary(**trial) for trial in content.pop("trials")]
        for trial in trials:
            _check_trial(trial)
        summary = StudySummary(trials=trials, **content)
        parameters = summary.parameters
        if not isinstance(parameters, list) or not all(isinstance(one, dict) and "key" in one for one in parameters):
            raise ValueError(f"parameters: found {describe_value(parameters)}, expected a list of objects with a key")
        return summary
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{path} is not a summary of a study ({error}); the next start of the sweep writes it again"
        ) from error


def _check_trial(trial: TrialSummary) -> None:
    """Check a trial of a file.

    Raises:
        ValueError: a field has another type, or the name is a path that may lead out of the study.
    """
    if trial.state not in STATES or not isinstance(trial.params, dict):
        raise ValueError("a trial without a state or without values")
    if not isinstance(trial.name, str) or trial.name != Path(trial.name).name or trial.name in ("", ".."):
        raise ValueError(f"name: found {describe_value(trial.name)}, expected the name of a folder")
    for field, value in (("number", trial.number), ("value", trial.value), ("step", trial.step)):
        is_missing = value is None and field != "number"
        if not is_missing and not is_number(value):
            raise ValueError(f"{field}: found {describe_value(value)}, expected a number")

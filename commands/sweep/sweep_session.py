"""Runs a worker of a study from its start to its last line."""

import hashlib
import json
import os
import shlex
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import IO

import yaml

from commands.launch.command_line import CONFIG_OPTIONS, option_values, split_arguments
from commands.report.page import write_page
from commands.report.run_selection import is_run, missing_trials
from commands.report.settings_diff import read_recorded_settings
from commands.report.study_summary import StudySummary
from commands.runs.run_names import make_runs_directory
from commands.sweep.study import DATABASE, Claim, OtherStudyError, SweepStudy
from commands.sweep.summary import describe_trial, summarize, write_summary
from commands.sweep.sweep_arguments import SweepCommand
from commands.sweep.sweep_settings import Parameter, SweepSettings
from commands.sweep.trial_process import fit_command
from commands.sweep.value_check import check_values
from commands.sweep.worker import MissingMetricError, SweepStopped, Worker
from engine.health.exit_codes import ExitCode
from engine.io.yaml_file import YamlFileError, check_yaml, read_text
from engine.system.installation import PROGRAM
from engine.system.runs_directory import run_options


def run_session(command: SweepCommand, settings: SweepSettings) -> int:
    """Run trials until the study is complete; return the exit code.

    Raises:
        ValueError: the config is refused, or the study was begun with other settings.
        KeyboardInterrupt: Ctrl-C before the first trial, or a second Ctrl-C.
    """
    for parameter in settings.parameters:
        same = [option for option, _ in option_values(command.arguments) if parameter.overrides(option.strip("-+"))]
        if same:
            problem = f"{parameter.key} is also the option {same[0]} of the command line; remove one of them"
            raise YamlFileError(str(command.sweep), problem, parameter.line)
    if not (command.folder / DATABASE).exists():
        _refuse_run(command.folder)
        check_values(command, settings)
        make_runs_directory(command.folder.parent)
        command.folder.mkdir(exist_ok=True)
    study = open_study(command, settings)
    _summary(study, settings, command)

    def train(claim: Claim) -> list[str]:
        _summary(study, settings, command)  # the report shows the trial while it runs
        return fit_command(command.arguments, claim.params, command.folder, claim.name)

    worker = Worker(study, settings, command.arguments, command.folder, print_line, train)

    def stop(number: int, frame: FrameType | None) -> None:
        # A second Ctrl-C ends the worker at once.
        if worker.received and number == signal.SIGINT:
            raise KeyboardInterrupt
        # SIGTERM (15) takes precedence over SIGINT (2): after it, a SLURM job is queued again.
        worker.received = max(worker.received, number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    print_line(f"study {command.folder}: {len(study.trials())} of {settings.trials} trials exist")
    try:
        worker.run(lambda number: print_line(describe_trial(_summary(study, settings, command).trials[number])))
    except MissingMetricError as error:
        raise YamlFileError(str(command.sweep), str(error), _key_lines(command.sweep).get("metric")) from error
    except SweepStopped as stopped:
        return report_stop(stopped)
    return _finish(_summary(study, settings, command), command)


def report_stop(stopped: SweepStopped) -> int:
    """Report the signal that ended the worker, and requeue the job of SLURM; return the exit code."""
    if stopped.number == signal.SIGINT:
        print_line("Ctrl-C: the trial is saved; the same command continues the study", sys.stderr)
        return ExitCode.SIGINT
    name = signal.Signals(stopped.number).name
    print_line(f"{name}: the trial is saved; the same command continues the study", sys.stderr)
    if not stopped.in_training:
        from callbacks.health.slurm_requeue import requeue_job  # imports torch

        requeue_job(os.environ)
    return ExitCode.SIGTERM


def print_line(line: str, file: IO[str] | None = None) -> None:
    """Print a line at once, also into a pipe."""
    print(line, file=file, flush=True)


def _summary(study: SweepStudy, settings: SweepSettings, command: SweepCommand) -> StudySummary:
    with study.locked():
        summary = summarize(study, settings, command.arguments, command.folder)
        write_summary(summary, command.folder)
    return summary


def _finish(summary: StudySummary, command: SweepCommand) -> int:
    counts = {
        state: sum(trial.state == state for trial in summary.trials) for state in ("complete", "pruned", "failed")
    }
    running = len(summary.trials) - sum(counts.values())
    parts = [f"{number} {state}" for state, number in {**counts, "running by other workers": running}.items() if number]
    print_line(f"{len(summary.trials)} trials: {', '.join(parts)}")
    if summary.best is not None:
        print_line(
            f"best: trial {summary.best.number}, {summary.metric} {summary.best.value:.6g} at step {summary.best.step}"
        )
        print_line(f"train it again: {summary.command}")
        best = command.folder / summary.best.name
        print_line(f"test its best checkpoint: {PROGRAM} test {run_options(best)}")
        if remark := checkpoint_remark(best, summary):
            print_line(remark)
    if not running:
        runs = [path for trial in summary.trials if is_run(path := command.folder / trial.name)]
        if runs:
            page = command.folder / "report.html"
            write_page(runs, page, study=summary, incomplete=missing_trials(command.folder, summary))
            print_line(f"report: {page}")
    return ExitCode.FAILED if counts["failed"] else ExitCode.OK


def _refuse_run(folder: Path) -> None:
    if any((folder / name).exists() for name in ("config.yaml", "metrics.jsonl", "checkpoints")):
        raise ValueError(f"{folder} is a run, not a study: choose another --run_name")


def checkpoint_remark(run: Path, summary: StudySummary) -> str:
    """Return a remark if the best checkpoint of a run is from another step than the sweep's best value; else empty."""
    monitor = read_recorded_settings(run).newest.get("best_checkpoint.monitor")
    if not monitor or monitor == summary.metric:
        return ""
    return (
        f"its best checkpoint is selected by {monitor} (best_checkpoint.monitor), not by {summary.metric}; "
        f"--best_checkpoint.monitor {summary.metric} selects by the metric of the sweep"
    )


def open_study(command: SweepCommand, settings: SweepSettings) -> SweepStudy:
    """Return the study, which may exist.

    Raises:
        YamlFileError: SWEEP.yaml has changed since the study was begun; names the line.
        OtherStudyError: the config or the options differ.
    """
    try:
        return SweepStudy(command.folder, settings, study_identity(command.arguments, settings))
    except OtherStudyError as error:
        key, _, setting = error.what.partition(".")
        if key not in SweepSettings._fields:
            raise
        lines = {parameter.key: parameter.line for parameter in settings.parameters} | _key_lines(command.sweep)
        raise YamlFileError(str(command.sweep), str(error), lines.get(setting, lines.get(key))) from error


def _key_lines(path: Path) -> dict[str, int]:
    """Return the line of each key of the first level of SWEEP.yaml."""
    tree = check_yaml(read_text(path), str(path))
    if not isinstance(tree, yaml.MappingNode):
        return {}
    return {name.value: name.start_mark.line + 1 for name, _ in tree.value}


def study_identity(arguments: Sequence[str], settings: SweepSettings) -> dict[str, str]:
    """Return everything that the values of the trials depend on; a study may get more trials.

    A config is the same if its name and its content are, by whatever path it is given.
    """
    identity = {key: getattr(settings, key) for key in ("metric", "direction", "seed")}
    for key in ("sampler", "pruner"):
        identity |= {f"{key}.{name}": value for name, value in getattr(settings, key)._asdict().items()}
    identity |= {f"parameters.{parameter.key}": _describe_parameter(parameter) for parameter in settings.parameters}
    options: list[str] = []
    for argument in split_arguments(arguments, CONFIG_OPTIONS):
        path = Path(argument.value)
        if not argument.option or not path.is_file():
            options += argument.words
            continue
        options += argument.with_value(path.name)
        content, digest = f"content of {path.name}", hashlib.sha256(path.read_bytes()).hexdigest()[:16]
        identity[content] = f"{identity[content]} {digest}" if content in identity else digest
    identity["options"] = shlex.join(options)
    return {key: str(value) for key, value in identity.items()}


def _describe_parameter(parameter: Parameter) -> str:
    """Return the values of a parameter as SWEEP.yaml has them: `{type: int, low: 8, high: 16, step: 4}`."""
    if parameter.kind == "categorical":
        return f"{{type: categorical, values: {json.dumps(parameter.values)}}}"
    number = int if parameter.kind == "int" else float
    more = ", log: true" if parameter.log else f", step: {parameter.step}" if parameter.step > 1 else ""
    return f"{{type: {parameter.kind}, low: {number(parameter.low)}, high: {number(parameter.high)}{more}}}"

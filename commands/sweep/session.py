"""Runs a worker of a study from its start to its last line."""

import hashlib
import json
import signal
import subprocess
import sys
from pathlib import Path
from types import FrameType
from typing import IO

from commands.report.main import is_run, write_page
from commands.report.study import StudySummary
from commands.runs.run_names import make_runs_folder
from commands.sweep.command import Command
from commands.sweep.settings import SweepSettings, Value
from commands.sweep.study import DATABASE, SweepStudy
from commands.sweep.summary import described, summarize, write_summary
from commands.sweep.trial_process import fit_command
from commands.sweep.worker import SweepStopped, Worker
from engine.health.exit_codes import ExitCode
from engine.io.yaml_file import YamlFileError
from engine.system.installation import PROGRAM
from engine.system.runs_folder import options_of_run


def run_session(command: Command, settings: SweepSettings) -> int:
    """Run trials until the study is complete; return the exit code.

    Raises:
        ValueError: the config is refused, or the study was begun with other settings.
        KeyboardInterrupt: Ctrl-C before the first trial, or a second one.
    """
    for parameter in settings.parameters:
        if any(word.partition("=")[0] == f"--{parameter.key}" for word in command.arguments):
            problem = f"{parameter.key} is also an option of the command line; keep one"
            raise YamlFileError(str(command.sweep), problem, parameter.line)
    if not (command.folder / DATABASE).exists():
        _refuse_run(command.folder)
        _check_config(command, settings)
        make_runs_folder(command.folder.parent)
        command.folder.mkdir(exist_ok=True)
    study = SweepStudy(command.folder, settings, _identity(command, settings))
    worker = Worker(study, settings, command.arguments, command.folder, print_line)

    def stop(number: int, frame: FrameType | None) -> None:
        if worker.received and number == signal.SIGINT:
            raise KeyboardInterrupt
        worker.received = max(worker.received, number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    print_line(f"study {command.folder}: {len(study.trials())} of {settings.trials} trials exist")
    try:
        worker.run(lambda number: print_line(described(_summary(study, settings, command).trials[number])))
    except SweepStopped as stopped:
        cause = "Ctrl-C" if stopped.number == signal.SIGINT else signal.Signals(stopped.number).name
        print_line(f"{cause}: the trial is saved; the same command continues the study", sys.stderr)
        return ExitCode.SIGINT if stopped.number == signal.SIGINT else ExitCode.SIGTERM
    return _finish(_summary(study, settings, command), command)


def print_line(line: str, file: IO[str] | None = None) -> None:
    """Print a line at once, also into a pipe."""
    print(line, file=file, flush=True)


def _summary(study: SweepStudy, settings: SweepSettings, command: Command) -> StudySummary:
    with study.locked():
        found = summarize(study, settings, command.arguments, command.folder.name)
        write_summary(found, command.folder)
    return found


def _finish(summary: StudySummary, command: Command) -> int:
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
        evaluated = options_of_run(command.folder / summary.best.name)
        print_line(f"test its best checkpoint: {PROGRAM} test {evaluated}")
    if not running:
        runs = [path for trial in summary.trials if is_run(path := command.folder / trial.name)]
        if runs:
            page = command.folder / "report.html"
            write_page(runs, page, study=summary)
            print_line(f"report: {page}")
    return ExitCode.FAILED if counts["failed"] else ExitCode.OK


def _refuse_run(folder: Path) -> None:
    if any((folder / name).exists() for name in ("config.yaml", "metrics.jsonl", "checkpoints")):
        raise ValueError(f"{folder} is a run, not a study: choose another --run_name")


def _check_config(command: Command, settings: SweepSettings) -> None:
    """Let `fit` parse the config with the first value of each parameter, before a study begins.

    Raises:
        ValueError: fit refuses it; the message names the line of SWEEP.yaml if it is about a parameter.
    """
    first: dict[str, Value] = {
        parameter.key: parameter.values[0] if parameter.kind == "categorical"
        else int(parameter.low) if parameter.kind == "int" else parameter.low
        for parameter in settings.parameters
    }  # fmt: skip
    words = [*fit_command(command.arguments, first, command.folder, "check"), "--print_config"]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode == ExitCode.OK:
        return
    if done.returncode < 0 or done.returncode == ExitCode.SIGINT:
        raise KeyboardInterrupt
    lines = [line.partition("error: ")[2] for line in done.stderr.splitlines() if "error: " in line]
    message = lines[-1] if lines else done.stderr.strip()[-500:]
    for parameter in settings.parameters:
        if parameter.key in message:
            raise YamlFileError(str(command.sweep), message, parameter.line)
    raise ValueError(message)


def _identity(command: Command, settings: SweepSettings) -> dict[str, str]:
    """Return everything that the values of the trials depend on; a study may get more trials."""
    fields = settings._asdict()
    del fields["trials"]
    fields["parameters"] = [parameter._replace(line=0)._asdict() for parameter in settings.parameters]
    found = {key: json.dumps(value) for key, value in fields.items()}
    found["options"] = " ".join(command.arguments)
    for option, path in zip(command.arguments, command.arguments[1:], strict=False):
        if option == "--config" and Path(path).is_file():
            found[f"content of {path}"] = hashlib.sha256(Path(path).read_bytes()).hexdigest()[:16]
    return found

"""Checks the values that a sweep may choose as `fit` does, before the study begins.

Both bounds and every categorical value are checked, one at a time beside the first values of the other parameters.
All are checked in one process of its own, which imports torch, as the worker does not.
"""

import contextlib
import io
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence

from commands.runs.current_names import current_option
from commands.sweep.sweep_arguments import SweepCommand
from commands.sweep.sweep_settings import Parameter, SweepSettings, Value
from commands.sweep.trial_process import option_argument
from engine.health.exit_codes import ExitCode
from engine.io.yaml_file import YamlFileError
from engine.system.installation import PROJECT

# `python -c` has the working directory as its first path; the project replaces it.
_PROGRAM = f"import sys; sys.path[0] = {str(PROJECT)!r}; from commands.sweep.value_check import main; main()"


def check_values(command: SweepCommand, settings: SweepSettings) -> None:
    """Let `fit` parse the config, and create model and data, with the values of each parameter.

    Raises:
        YamlFileError: a value is refused; the message names the line of its parameter.
        ValueError: the config or an option is refused.
        KeyboardInterrupt: Ctrl-C.
    """
    cases = list(checked_cases(settings.parameters))
    argument_lists = [
        [*command.arguments, *(option_argument(key, value) for key, value in values.items())] for _, values in cases
    ]
    words = [sys.executable, "-c", _PROGRAM]
    done = subprocess.run(words, input=json.dumps(argument_lists), capture_output=True, text=True)
    if done.returncode < 0 or done.returncode == ExitCode.SIGINT:
        raise KeyboardInterrupt
    if done.returncode != ExitCode.OK:
        raise ValueError(done.stderr.strip()[-500:])
    problems = json.loads(done.stdout)
    if not problems:
        return
    message = problems[-1]
    changed = cases[len(problems) - 1][0]
    parameter = changed or next(
        (one for one in settings.parameters if one.key in message or current_option(one.key) in message), None
    )
    if parameter is None:
        raise ValueError(message)
    raise YamlFileError(str(command.sweep), message, parameter.line)


def checked_cases(parameters: Sequence[Parameter]) -> Iterator[tuple[Parameter | None, dict[str, Value]]]:
    """Yield values of all parameters, and the parameter that has another value than in the first case."""
    checked = {parameter: _values_to_check(parameter) for parameter in parameters}
    first = {parameter.key: values[0] for parameter, values in checked.items()}
    yield None, first
    for parameter, values in checked.items():
        yield from ((parameter, {**first, parameter.key: value}) for value in values[1:])


def _values_to_check(parameter: Parameter) -> tuple[Value, ...]:
    if parameter.kind == "categorical":
        return parameter.values
    ends = parameter.low, parameter.high
    return (int(ends[0]), int(ends[1])) if parameter.kind == "int" else ends


def main() -> None:
    """Read lists of arguments as JSON from stdin; print the problems up to the first refused list, none if all fit."""
    argument_lists: list[list[str]] = json.load(sys.stdin)
    problems: list[str] = []
    with contextlib.redirect_stdout(io.StringIO()):
        for arguments in argument_lists:
            problems.append(problem_of(arguments))
            if problems[-1]:
                break
    print(json.dumps(problems if problems[-1] else []))


def problem_of(arguments: list[str]) -> str:
    """Return why `fit` refuses arguments before it trains; empty if it does not."""
    from commands.cli.configs.config_files import check_arguments
    from commands.cli.configs.parser_message import raised_by_class
    from commands.cli.required_extras import required_extras
    from commands.doctor.training.load_config import fit_parser, instantiate_part, parse_fit
    from engine.system.extras import require_extras

    fit_parser().exit_on_error = True  # an error is printed in one line, as `fit` prints it
    printed = io.StringIO()
    try:
        with contextlib.redirect_stderr(printed):
            check_arguments(arguments)
            config = parse_fit(arguments)
        require_extras(required_extras(config, "fit"))
        for part in ("data", "model"):
            instantiate_part(config, part)
    except SystemExit:
        lines = [line.partition("error: ")[2] for line in printed.getvalue().splitlines() if "error: " in line]
        return lines[-1] if lines else printed.getvalue().strip()[-500:]
    except Exception as error:  # a class may raise anything about its settings
        cause = raised_by_class(error)
        return str(cause) or type(cause).__name__
    return ""

"""Derives the command line of the second run of `demo --compare NAME` from the command line of the first run."""

from pathlib import Path

from commands.cli.arguments import is_overlay, no_config_error
from commands.runs.run_directory import is_of_a_run, newest_config
from commands.runs.run_names import check_run_name

_OF_ONE_RUN = ("--run_name", "--compare")
_OF_THE_PAGE = ("--host", "--port", "--auth")
_CONFIG = ("--config", "-c")


def arguments_of_compared(arguments: list[str], name: str, runs: Path) -> list[str]:
    """Return the command line that opens the compared run alone, with the options that apply to both runs.

    Args:
        arguments: command line of the first run, which begins with the command and has the config of this run.
        name: the compared run.
        runs: directory of all runs.

    Raises:
        ValueError: the command line has a config or a checkpoint, which would apply to both runs.
        FileNotFoundError: there is no such run.
    """
    check_run_name(name)
    config = newest_config(runs / name)
    if config is None:
        raise no_config_error(name, runs)
    shared, rest = [], iter(arguments[1:])
    for argument in rest:
        option, equals, value = argument.partition("=")
        if not option.startswith("--") and option not in _CONFIG:
            shared.append(argument)
            continue
        if option not in (*_OF_ONE_RUN, *_OF_THE_PAGE, *_CONFIG, "--ckpt_path"):
            shared.append(argument)
            continue
        value = value if equals else next(rest, "")
        if option in _CONFIG and not is_overlay(value):
            # The config of the first run is dropped: the compared run has its own.
            if not is_of_a_run(Path(value), runs):
                raise ValueError(f"--config {value}: with --compare, name both runs and give overlays at most")
        elif option in _CONFIG or option == "--ckpt_path":
            if option == "--ckpt_path" and value not in ("best", "last"):
                raise ValueError(f"--ckpt_path {value}: with --compare, expected best or last, which both runs have")
            shared += [option, value]
    return [arguments[0], "--config", str(config), *shared, "--run_name", name]

"""Derives the command line of the second run of `demo --compare NAME` from the command line of the first run."""

from pathlib import Path

from commands.cli.arguments import no_config_error
from commands.launch.command_line import CONFIG_OPTIONS, split_arguments
from commands.runs.run_directory import newest_config
from commands.runs.run_names import changes_a_config, check_run_name, is_of_a_run

_SINGLE_RUN_OPTIONS = ("--run_name", "--compare")
_SERVER_OPTIONS = ("--host", "--port", "--auth")


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
    shared: list[str] = []
    for argument in split_arguments(
        arguments[1:], (*_SINGLE_RUN_OPTIONS, *_SERVER_OPTIONS, *CONFIG_OPTIONS, "--ckpt_path")
    ):
        value = argument.value
        if argument.option in CONFIG_OPTIONS:
            # The config of the first run is dropped: the compared run has its own.
            if changes_a_config(Path(value)):
                shared += [argument.option, value]
            elif not is_of_a_run(Path(value), runs):
                raise ValueError(
                    f"--config {value}: with --compare, name both runs, and give overlays and ablation configs alone"
                )
        elif argument.option == "--ckpt_path":
            if value not in ("best", "last"):
                raise ValueError(f"--ckpt_path {value}: with --compare, expected best or last, which both runs have")
            shared += [argument.option, value]
        elif not argument.option:
            shared += argument.words
    return [arguments[0], "--config", str(config), *shared, "--run_name", name]

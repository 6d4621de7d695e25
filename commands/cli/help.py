"""Prints the overview of the commands and refuses unknown ones, without the imports, which take seconds."""

import sys
from difflib import get_close_matches

from engine.system.installation import PROGRAM, PROJECT, SETUP

COMMANDS = {
    "prepare": "download and convert the data of a config, once; safe to repeat and to interrupt",
    "doctor": "check machine, config and launcher before a training",
    "fit": "train; with --ckpt_path last resume a run",
    "validate": "compute metrics of a run's best checkpoint on the validation data",
    "test": "compute metrics of a run's best checkpoint on the test data",
    "predict": "write predictions of a run's best checkpoint",
    "export": "write a trained model as a directory that does not depend on this project",
    "demo": "open a page on which a run's best checkpoint answers you",
    "chat": "ask a run's best checkpoint in the terminal",
    "report": "write a page about runs: curves, events, results, and how the runs differ",
    "sweep": "search hyper-parameters: a study of trainings that a kill does not lose",
}


def is_overview(arguments: list[str]) -> bool:
    """Return whether a command line has no command: it is empty, or `--help` alone."""
    return arguments in ([], ["-h"], ["--help"])


def unknown_command(arguments: list[str]) -> str:
    """Return why the first word of a command line is not a command; empty if it is one, or an option."""
    name = arguments[0] if arguments else ""
    if not name or name.startswith("-") or name in COMMANDS:
        return ""
    close = get_close_matches(name, COMMANDS, n=1)
    advice = f"did you mean {close[0]}?" if close else f"{PROGRAM} --help lists them"
    return f"found the command {name!r}, expected one of {', '.join(COMMANDS)}; {advice}"


def usage(command: str) -> str:
    """Return the usage line of a command."""
    return f"{PROGRAM} {command} --config FILE [--config OVERLAY ...] [--KEY VALUE ...]"


def print_overview(arguments: list[str]) -> int:
    """Print the overview; return the exit code, 2 if no command was given."""
    lines = [
        f"usage: {usage('COMMAND')}",
        "",
        "commands:",
        *(f"  {name:10}{description}" for name, description in COMMANDS.items()),
        "",
        f"{PROGRAM} COMMAND --help shows every option of a command.",
        f"First example: {PROGRAM} fit --config configs/recommender/quickstart.yaml",
    ]
    if not SETUP.is_file():
        lines.append(f"Configs that are not in the current directory are read from {PROJECT / 'configs'}.")
    print("\n".join(lines), file=sys.stdout if arguments else sys.stderr)
    return 0 if arguments else 2

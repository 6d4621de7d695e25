"""`python train.py --help`: what there is to ask for, without the imports, which take seconds."""

import sys

COMMANDS = {
    "prepare": "download and convert the data of a config, once; safe to repeat and to interrupt",
    "doctor": "examine machine, config and team before a training: what would go wrong, and why",
    "fit": "train; with --ckpt_path last go on with a run",
    "validate": "the figures of a run's best checkpoint on the validation data",
    "test": "the figures of a run's best checkpoint on the test data",
    "predict": "write what a run's best checkpoint predicts",
    "export": "write what a run has trained as a directory that needs nothing of this project",
    "report": "show runs as a page: curves, what happened when, results, and how the runs differ",
}


def overview_asked(arguments: list[str]) -> bool:
    return arguments in ([], ["-h"], ["--help"])


def usage_of(command: str) -> str:
    return f"train.py {command} --config FILE [--config OVERLAY ...] [--KEY VALUE ...]"


def show_overview(arguments: list[str]) -> int:
    """Prints it; the exit code is that of a wrong command line where no command was given."""
    lines = [
        f"usage: python {usage_of('COMMAND')}",
        "",
        "commands:",
        *(f"  {name:10}{what}" for name, what in COMMANDS.items()),
        "",
        "python train.py COMMAND --help shows every option of a command.",
        "To begin with: python train.py fit --config configs/recommender/quickstart.yaml",
    ]
    print("\n".join(lines), file=sys.stdout if arguments else sys.stderr)
    return 0 if arguments else 2

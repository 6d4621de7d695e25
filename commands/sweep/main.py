"""Runs `python train.py sweep --config X --sweep SWEEP.yaml`."""

import sys
from collections.abc import Sequence
from typing import NoReturn

from engine.health.exit_codes import ExitCode
from engine.system.installation import PROGRAM


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run `python train.py sweep ...`.

    Args:
        arguments: arguments after `sweep`; None: `sys.argv`.

    Raises:
        SystemExit: always; see the exit codes of `--help`.
    """
    try:
        raise SystemExit(_sweep(sys.argv[2:] if arguments is None else arguments))
    except KeyboardInterrupt:  # before the worker handles the signal, or a second Ctrl-C
        print("Ctrl-C: ended at once; the same command continues the study", file=sys.stderr)
        raise SystemExit(ExitCode.SIGINT) from None
    except TimeoutError as error:  # filelock's
        print(f"{PROGRAM} sweep: {error} Another worker has held it for too long: is its disk slow?", file=sys.stderr)
        raise SystemExit(ExitCode.FAILED) from None
    except (OSError, ValueError) as error:
        print(f"{PROGRAM} sweep: {error}", file=sys.stderr)
        raise SystemExit(ExitCode.USER_ERROR) from error


def _sweep(arguments: Sequence[str]) -> int:
    """Run the worker; return the exit code. The imports are here, where Ctrl-C is a line."""
    from commands.sweep.settings_reader import read_sweep
    from commands.sweep.sweep_arguments import parse_sweep_arguments
    from engine.system.extras import require_extras

    command = parse_sweep_arguments(arguments)
    try:
        settings = read_sweep(command.sweep)
    except OSError as error:
        raise ValueError(f"--sweep {command.sweep}: {error.strerror}; docs/sweep.md describes the file") from error
    require_extras({"sweep": "sweep"})
    from commands.sweep.sweep_session import run_session  # imports Optuna

    return run_session(command, settings)

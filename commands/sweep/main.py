"""Runs `python train.py sweep --config X --sweep SWEEP.yaml`."""

import sys
from collections.abc import Sequence
from typing import NoReturn

from filelock import Timeout

from commands.sweep.command import parse
from commands.sweep.settings import read_sweep
from engine.health.exit_codes import ExitCode
from engine.system.extras import require_extras
from engine.system.installation import PROGRAM


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run `python train.py sweep ...`.

    Args:
        arguments: arguments after `sweep`; None: those of `sys.argv`.

    Raises:
        SystemExit: always; see the exit codes of `--help`.
    """
    try:
        raise SystemExit(_sweep(sys.argv[2:] if arguments is None else arguments))
    except KeyboardInterrupt:  # before the worker handles the signal, or the second one
        print("Ctrl-C: ended at once; the same command continues the study", file=sys.stderr)
        raise SystemExit(ExitCode.SIGINT) from None
    except Timeout as error:
        problem = f"another worker has held {error.lock_file} for too long; is its file system slow?"
        print(f"{PROGRAM} sweep: {problem}", file=sys.stderr)
        raise SystemExit(ExitCode.FAILED) from None
    except (OSError, ValueError) as error:
        print(f"{PROGRAM} sweep: {error}", file=sys.stderr)
        raise SystemExit(ExitCode.USER_ERROR) from error


def _sweep(arguments: Sequence[str]) -> int:
    command = parse(arguments)
    settings = read_sweep(command.sweep)
    require_extras({"sweep": "sweep"})
    from commands.sweep.session import run_session  # imports Optuna

    return run_session(command, settings)

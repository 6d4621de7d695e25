"""Runs every command: `python train.py fit --config configs/FAMILY/X.yaml`; installed, `lockstep fit ...`."""

import gc
import os
import sys
from collections.abc import Callable
from importlib import import_module

# Commands that start no training in this process: `doctor` must report errors in the imports of torch and Lightning,
# `report` reads files only, and `sweep` starts trainings.
_MAINS = {name: f"commands.{name}.main" for name in ("doctor", "report", "sweep")}


def main() -> None:
    """Run the command of `sys.argv`. Imports depend on the command."""
    from commands.launch.standard_streams import open_closed_descriptors, tolerate_broken_console

    open_closed_descriptors()  # before the first file is opened
    from commands.cli.help import is_overview, print_overview, unknown_command
    from commands.launch.local_rank import after_command, without_local_rank

    sys.argv[1:] = after_command(sys.argv[1:])
    without_local_rank(sys.argv[1:], os.environ)  # sets the variable, which Lightning reads when it is imported
    if is_overview(sys.argv[1:]):
        sys.exit(print_overview(sys.argv[1:]))
    if problem := unknown_command(sys.argv[1:]):  # the parser knows only the commands that import torch
        print(f"error: {problem}", file=sys.stderr)
        sys.exit(2)
    from commands.launch.process_checks import check_process

    try:
        check_process(os.environ)  # Lightning reads the variables when it is imported
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    from commands.launch.openmp_spin import limit_thread_spin

    limit_thread_spin(os.environ)  # OpenMP reads it when torch is imported
    from commands.launch.early_signal_handlers import install_signal_handlers

    install_signal_handlers()  # the imports take seconds, in which a signal would kill

    from commands.launch.gc_freeze import exempt_imports_from_gc

    # Searching ever more imported objects for garbage takes an eighth of the start. They stay until the process ends.
    gc.disable()
    command = next(iter(sys.argv[1:]), "")
    run: Callable[[], object] = import_module(_MAINS.get(command, "commands.cli.main")).main
    exempt_imports_from_gc()

    if command in _MAINS:  # what it prints is its result
        run()
        return
    with tolerate_broken_console():
        run()


if __name__ == "__main__":
    main()

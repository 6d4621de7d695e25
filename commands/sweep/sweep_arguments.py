"""Parses the command line of the sweep."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from commands.cli.shipped_configs import resolve_shipped_configs
from commands.runs.run_names import check_run_name
from commands.runs.runs_option import HELP, OPTION
from engine.system.installation import PROGRAM
from engine.system.runs_directory import runs_directory

_DESCRIPTION = """\
Search hyper-parameters by Optuna. Each trial is a training in its own process, with a run of its own in the study's
folder.

The same command continues a study that was killed, and the killed trial from its last checkpoint. Started again while
the study runs, it is another worker of it, also on another machine with the same file system. Options that are not
listed here are those of fit and apply to every trial."""

_EPILOG = f"""\
examples:
  {PROGRAM} sweep --config configs/recommender/quickstart.yaml --sweep configs/recommender/sweep/quickstart.yaml
  {PROGRAM} sweep --config X --sweep SWEEP.yaml --run_name first --trainer.max_epochs 4
  {PROGRAM} report runs/first                       the page of the study; it may still run

exit code: 0 if no trial failed, 1 if some did, 2 if SWEEP.yaml or an option is wrong, 130 after Ctrl-C.
More: docs/sweep.md"""

_REFUSED = ("--ckpt_path", "--print_config")


class SweepCommand(NamedTuple):
    """Parts of a command line of the sweep: SWEEP.yaml, the folder of the study, and the options of every trial."""

    sweep: Path
    folder: Path  # of the study
    arguments: list[str]  # options of every trial


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the sweep's own options. All other options belong to fit."""
    parser = argparse.ArgumentParser(
        prog=f"{PROGRAM} sweep",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--config", "-c", action="append", required=True, metavar="FILE", help="config of every trial")
    parser.add_argument("--sweep", type=Path, required=True, metavar="FILE", help="what is searched: docs/sweep.md")
    text = "name of the study, a folder of the directory of runs (default: sweep-STEM of the file of --sweep)"
    parser.add_argument("--run_name", metavar="NAME", help=text)
    parser.add_argument(OPTION, type=Path, metavar="DIR", dest="runs_directory", help=HELP)
    return parser


def parse_sweep_arguments(arguments: Sequence[str]) -> SweepCommand:
    """Return the parts of a command line.

    Raises:
        ValueError: an option or the name of the study is not allowed.
        SystemExit: argparse refuses the command line.
    """
    options, others = build_parser().parse_known_args(resolve_shipped_configs(list(arguments)))
    for argument in others:
        if argument.partition("=")[0] in _REFUSED:
            raise ValueError(f"{argument}: the sweep sets it for each trial; remove it")
    name = options.run_name or f"sweep-{options.sweep.stem}"
    check_run_name(name)
    configs = [word for path in options.config for word in ("--config", path)]
    return SweepCommand(options.sweep, (options.runs_directory or runs_directory()) / name, [*configs, *others])

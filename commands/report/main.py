"""Runs `python train.py report RUN [RUN ...]`: writes runs into an HTML file without dependencies."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from commands.report.comparison.paired_comparison import compare_runs
from commands.report.comparison.significance import Comparison
from commands.report.group_table import group_tables, print_tables
from commands.report.page import write_page
from commands.report.run_selection import default_page, select_runs
from commands.runs.runs_option import HELP, OPTION
from engine.health.exit_codes import ExitCode
from engine.system.installation import PROGRAM
from engine.system.runs_directory import runs_directory

_LARGEST_CUTOFF = 1000

_DESCRIPTION = """\
Write the records of runs as one HTML file: curves, events, results, examples, settings, environment. Several runs are
compared; runs that differ only in their seed are one curve with mean and spread. The page of a study of `sweep` has its
trials and parameters. The command reads files only, needs neither torch nor a network, and works while a run trains.

Runs that `test` has evaluated on the same samples are compared with the first of them by a paired test. Of a single
recommender, metrics by group of users and items are printed, with confidence intervals."""

_EPILOG = f"""\
examples:
  {PROGRAM} report NAME                          runs/NAME/report.html
  {PROGRAM} report runs/sasrec-*                 runs/report.html, all of them compared
  {PROGRAM} report A B C                         the same, and whether B and C are better than A
  {PROGRAM} report runs/STUDY                    the trials of a hyper-parameter search
  {PROGRAM} report NAME --cutoffs 5 50           metrics by group at 5 and at 50
  {PROGRAM} report NAME --output /tmp/NAME.html

More: docs/monitoring.md"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run `python train.py report ...`.

    Args:
        arguments: arguments after `report`; None: `sys.argv`.

    Raises:
        SystemExit: with code 2 and a message if a run cannot be read or the page cannot be written.
    """
    options = build_parser().parse_args(sys.argv[2:] if arguments is None else arguments)
    try:
        runs = options.runs_directory or runs_directory()
        selected = select_runs(options.runs, runs)
        for message in selected.messages:
            print(f"{PROGRAM} report: {message}", file=sys.stderr)
        folders, study = selected.folders, selected.study
        page = options.output or default_page(folders, study)
        if page.is_dir():
            raise IsADirectoryError(f"--output {page} is a directory, expected a file such as {page / 'report.html'}")
        tables, remark = group_tables(folders[0], options.cutoffs) if len(folders) == 1 else ([], "")
        compared = Comparison([remark]) if remark else compare_runs([] if study else folders, options.cutoffs)
        write_page(folders, page, compared, tables, study, selected.incomplete)
    except (OSError, ValueError) as error:
        print(f"{PROGRAM} report: {error}", file=sys.stderr)
        raise SystemExit(ExitCode.USER_ERROR) from error
    print(f"{page} ({page.stat().st_size / 1e6:.1f} MB)")
    print_tables(tables)
    for line in compared.lines:
        print(line)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the arguments after `report`."""
    parser = argparse.ArgumentParser(
        prog=f"{PROGRAM} report",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("runs", nargs="+", metavar="RUN", help="name or directory of a run or of a study of `sweep`")
    text = "values of k of a recommender's metrics by group and in its paired test (default: 10)"
    parser.add_argument("--cutoffs", type=_cutoff, nargs="+", default=[10], metavar="K", help=text)
    parser.add_argument(OPTION, type=Path, metavar="DIR", dest="runs_directory", help=HELP)
    text = (
        "file to write (default: report.html in the directory of the run or study; of several runs in the parent of "
        "the first, or compared.html there if the parent is a study)"
    )
    parser.add_argument("--output", type=Path, metavar="FILE", help=text)
    return parser


def _cutoff(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= _LARGEST_CUTOFF:
        raise argparse.ArgumentTypeError(f"expected an integer from 1 to {_LARGEST_CUTOFF}, found {text!r}")
    return int(text)

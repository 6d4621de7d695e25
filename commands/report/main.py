"""Runs `python train.py report RUN [RUN ...]`: writes runs into an HTML file without dependencies."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from commands.report.group_table import GroupTable, group_tables, print_tables
from commands.report.page_data import page_content
from commands.report.paired_comparison import compare_runs
from commands.report.significance import NOT_COMPARED, Comparison
from commands.report.study import SUMMARY, StudySummary, read_study
from engine.health.exit_codes import ExitCode
from engine.io.atomic_file import write_atomically
from engine.io.html_page import html_page, replace_non_finite
from engine.io.json_records import describe_names
from engine.system.installation import PROGRAM
from engine.system.runs_folder import HELP, OPTION, runs_folder

PAGES = Path(__file__).with_name("pages")

SCRIPTS = (
    "state",
    "head",
    "axis",
    "chart",
    "curves",
    "timeline",
    "results",
    "examples",
    "events",
    "settings",
    "slices",
    "cost",
    "study",
    "page",
)

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
        runs = options.root or runs_folder()
        given, study = with_trials(options.runs, runs)
        folders = unique_folders(run_folders(given, runs))
        page = options.output or default_page(folders, study)
        if page.is_dir():
            raise IsADirectoryError(f"--output {page} is a directory, expected a file such as {page / 'report.html'}")
        tables, remark = group_tables(folders[0], options.cutoffs) if len(folders) == 1 else ([], "")
        compared = Comparison([remark]) if remark else compare_runs([] if study else folders, options.cutoffs)
        write_page(folders, page, compared, tables, study)
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
    parser.add_argument(OPTION, type=Path, metavar="DIR", dest="root", help=HELP)
    text = (
        "file to write (default: report.html in the directory of the run or study; of several runs in the parent of "
        "the first, or compared.html there if the parent is a study)"
    )
    parser.add_argument("--output", type=Path, metavar="FILE", help=text)
    return parser


def with_trials(given: Sequence[str], runs: Path) -> tuple[list[str], StudySummary | None]:
    """Replace each study by the runs of its trials; return the summary of a study that is given alone.

    Raises:
        ValueError: a study has no trial that has begun, or its summary is malformed.
    """
    found: list[str] = []
    study = None
    for name in given:
        folder = next((path for path in (Path(name), runs / name) if (path / SUMMARY).is_file()), None)
        if folder is None:
            found.append(name)
            continue
        summary = read_study(folder)
        found += _trial_folders(folder, summary)
        study = summary if len(given) == 1 else None
    return found, study


def _trial_folders(folder: Path, summary: StudySummary) -> list[str]:
    """Return the run directories of the trials; trials that have trained and have none are named.

    Raises:
        ValueError: no trial has a run directory.
    """
    # A trial that fails before its training has no record, and neither has a trial that has just begun.
    trained = [trial.name for trial in summary.trials if trial.value is not None]
    missing = [name for name in trained if not is_run(folder / name)]
    found = [str(folder / trial.name) for trial in summary.trials if is_run(folder / trial.name)]
    if not found and missing:
        raise ValueError(
            f"{folder}: found no run directory of a trial, expected {describe_names(missing)}, which have trained; "
            f"restore them beside {SUMMARY}"
        )
    if not found:
        raise ValueError(f"{folder}: no trial of the study has begun its training; start the report again later")
    if missing:
        print(
            f"{PROGRAM} report: {folder}: trials without a run directory are skipped ({len(missing)} of "
            f"{len(trained)}): {describe_names(missing)}", file=sys.stderr,
        )  # fmt: skip
    return found


def default_page(folders: Sequence[Path], study: StudySummary | None) -> Path:
    """Return the page of runs; only a study writes report.html into the folder of a study."""
    parent = folders[0].parent
    if study:
        return parent / "report.html"
    if len(folders) == 1:
        return folders[0] / "report.html"
    return parent / ("compared.html" if (parent / SUMMARY).is_file() else "report.html")


def run_folders(given: Sequence[str], runs: Path) -> list[Path]:
    """Return the run directories of names; paths that are not runs are skipped with a message, as `runs/*` has some.

    Raises:
        FileNotFoundError: a name does not exist, or no path is a run.
    """
    existing = [name for name in given if Path(name).exists()]
    skipped = [name for name in existing if not is_run(Path(name)) and not is_run(runs / name)]
    if len(skipped) == len(given):
        return [run_folder(name, runs) for name in given]
    for name in skipped:
        print(f"{PROGRAM} report: {name} is not a run directory, skipped", file=sys.stderr)
    return [run_folder(name, runs) for name in given if name not in skipped]


def run_folder(given: str, runs: Path) -> Path:
    """Return the directory of a run.

    Args:
        given: path of a directory, else the name of a run.
        runs: directory of all runs.

    Raises:
        FileNotFoundError: there is none, or it contains no record of a run.
    """
    folders = [path for path in (Path(given), runs / given) if path.is_dir()]
    if not folders:
        existing = ", ".join(sorted(folder.name for folder in runs.glob("*") if is_run(folder))) or "none"
        raise FileNotFoundError(f"no run {given!r}: {runs / given} is not a directory; existing runs: {existing}")
    recorded = [path for path in folders if is_run(path)]
    if not recorded:
        raise FileNotFoundError(f"{folders[0]} has neither metrics.jsonl nor log.jsonl, so it is not a run directory")
    return recorded[0]


def unique_folders(folders: Sequence[Path]) -> list[Path]:
    """Return the folders without duplicates, which different paths may name."""
    by_path: dict[Path, Path] = {}
    for folder in folders:
        if folder.resolve() in by_path:
            print(f"{PROGRAM} report: {folder} is given twice and read once", file=sys.stderr)
        by_path.setdefault(folder.resolve(), folder)
    return list(by_path.values())


def write_page(
    folders: Sequence[Path],
    page: Path,
    compared: Comparison = NOT_COMPARED,
    tables: Sequence[GroupTable] = (),
    study: StudySummary | None = None,
) -> None:
    """Read the runs in `folders` and write `page`.

    Args:
        folders: run directories.
        page: the file to write.
        compared: paired tests of the runs.
        tables: metrics of a single run by group.
        study: the study of which the runs are the trials.

    Raises:
        OSError, ValueError: a file cannot be read or written; an existing page is unchanged.
    """
    of_ranks = {"compared": compared._asdict(), "tables": [table._asdict() for table in tables]}
    name = folders[0].resolve().parent.name if study else ""
    read = page_content(folders, page)
    for problem in (problem for run in read["runs"] for problem in run["problems"]):
        print(f"{PROGRAM} report: {problem}", file=sys.stderr)
    content = {**read, **of_ranks, "study": study and {**study.for_page(), "name": name}}
    title = name or (content["runs"][0]["name"] if len(folders) == 1 else f"{len(folders)} runs")
    data = json.dumps(replace_non_finite(content), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # lone surrogates, which a file name or a sample may contain, cannot be encoded: they become question marks
    scripts = [PAGES / f"{name}.js" for name in SCRIPTS]
    text = html_page(f"{title} – run report", data, scripts, [PAGES / "run_report.css"]).encode("utf-8", "replace")
    # a page that a browser has open is replaced at once, and an error leaves the earlier page in place
    write_atomically(page, text)


def _cutoff(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= _LARGEST_CUTOFF:
        raise argparse.ArgumentTypeError(f"expected an integer from 1 to {_LARGEST_CUTOFF}, found {text!r}")
    return int(text)


def is_run(folder: Path) -> bool:
    """Return whether a folder contains the record of a run."""
    return any((folder / name).is_file() for name in ("metrics.jsonl", "log.jsonl"))

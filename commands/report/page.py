"""Writes the page about runs: one HTML file with its scripts, its styles and the records of the runs as JSON."""

import sys
from collections.abc import Sequence
from pathlib import Path

from commands.report.comparison.significance import NOT_COMPARED, Comparison
from commands.report.group_table import GroupTable
from commands.report.page_data import page_content
from commands.report.study_summary import StudySummary
from engine.io.atomic_file import write_atomically
from engine.io.html_page import dump_data, html_page
from engine.system.installation import PROGRAM

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


def write_page(
    folders: Sequence[Path],
    page: Path,
    compared: Comparison = NOT_COMPARED,
    tables: Sequence[GroupTable] = (),
    study: StudySummary | None = None,
    incomplete: Sequence[str] = (),
) -> None:
    """Read the runs in `folders` and write `page`.

    Args:
        folders: run directories.
        page: the file to write.
        compared: paired tests of the runs.
        tables: metrics of a single run by group.
        study: the study of which the runs are the trials.
        incomplete: messages on missing records of the selection; those of the runs' files are added.

    Raises:
        OSError, ValueError: a file cannot be read or written; an existing page is unchanged.
    """
    name = folders[0].resolve().parent.name if study else ""
    content = page_content(folders, page)
    problems = [problem for run in content["runs"] for problem in run.pop("problems")]
    for problem in problems:
        print(f"{PROGRAM} report: {problem}", file=sys.stderr)
    content |= {
        "problems": [*incomplete, *problems],
        "compared": compared._asdict(),
        "tables": [table._asdict() for table in tables],
        "study": study and {**study.for_page(), "name": name},
    }
    title = name or (content["runs"][0]["name"] if len(folders) == 1 else f"{len(folders)} runs")
    data = dump_data(content)
    scripts = [PAGES / f"{name}.js" for name in SCRIPTS]
    # Lone surrogates, which a file name or a sample may contain, cannot be encoded: they become question marks.
    text = html_page(f"{title} – run report", data, scripts, [PAGES / "run_report.css"]).encode("utf-8", "replace")
    # A page that a browser has open is replaced at once, and an error leaves the earlier page in place.
    write_atomically(page, text)

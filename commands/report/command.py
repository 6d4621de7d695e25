"""`python train.py report RUN [RUN ...]`: runs as one HTML file, which needs no network and no other file."""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from commands.report.content import page_content
from datamodules.multimodal.report import finite, page_text
from engine.durable_file import flush_folder, write_beside

PAGES = Path(__file__).with_name("pages")
RUNS = Path("runs")

SCRIPTS = ("state", "head", "chart", "curves", "timeline", "results", "examples", "events", "settings", "page")

_DESCRIPTION = """\
Writes what runs have recorded as one HTML file: curves, what happened when, results, examples, settings, environment.
Several runs are compared; those that differ only in their seed are shown as one, with mean and spread. It reads only
files, needs neither torch nor a network, and may be asked of a run that is still training."""

_EPILOG = """\
examples:
  python train.py report NAME                          runs/NAME/report.html
  python train.py report runs/sasrec-*                 runs/report.html, all of them compared
  python train.py report NAME --output /tmp/NAME.html

docs/monitoring.md tells more."""


def main(arguments: Sequence[str] | None = None) -> None:
    """`python train.py report ...`; `arguments` are those behind the word `report`.

    Raises:
        SystemExit: with 2 and a message if a run cannot be read or the page cannot be written.
    """
    given = parser().parse_args(sys.argv[2:] if arguments is None else arguments)
    try:
        folders = once_each(run_folders(given.runs))
        page = given.output or (folders[0] if len(folders) == 1 else folders[0].parent) / "report.html"
        write_page(folders, page)
    except (OSError, ValueError) as error:
        print(f"train.py report: {error}", file=sys.stderr)
        raise SystemExit(2) from error
    print(f"{page} ({page.stat().st_size / 1e6:.1f} MB)")


def parser() -> argparse.ArgumentParser:
    """What is behind the word `report`."""
    words = argparse.ArgumentParser(
        prog="train.py report",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    words.add_argument("runs", nargs="+", metavar="RUN", help="a run's name, or its folder")
    where = "the file to write (default: report.html in the run's folder, of several in the folder around the first)"
    words.add_argument("--output", type=Path, metavar="FILE", help=where)
    return words


def run_folders(given: Sequence[str]) -> list[Path]:
    """Of several, what is there and no run's folder is passed over with a line: `runs/*` has other files, too.

    Raises:
        FileNotFoundError: there is none of a name, or no run at all.
    """
    there = [name for name in given if Path(name).exists()]
    others = [name for name in there if not _recorded(Path(name)) and not _recorded(RUNS / name)]
    if len(others) == len(given):
        return [run_folder(name) for name in given]
    for name in others:
        print(f"train.py report: {name} is no run's folder, passed over", file=sys.stderr)
    return [run_folder(name) for name in given if name not in others]


def run_folder(given: str) -> Path:
    """The folder that is meant: a path as it stands, else a run's name.

    Raises:
        FileNotFoundError: there is none, or nothing was recorded in it.
    """
    folders = [path for path in (Path(given), RUNS / given) if path.is_dir()]
    if not folders:
        there = ", ".join(sorted(folder.name for folder in RUNS.glob("*") if _recorded(folder))) or "none"
        raise FileNotFoundError(f"no run {given!r}: {RUNS}/{given} is not a folder; runs that have a record: {there}")
    recorded = [path for path in folders if _recorded(path)]
    if not recorded:
        raise FileNotFoundError(f"{folders[0]} has neither metrics.jsonl nor log.jsonl, so it is no run's folder")
    return recorded[0]


def once_each(folders: Sequence[Path]) -> list[Path]:
    """Without those that were named before, in whatever way."""
    found: dict[Path, Path] = {}
    for folder in folders:
        found.setdefault(folder.resolve(), folder)
    return list(found.values())


def write_page(folders: Sequence[Path], page: Path) -> None:
    """Reads the runs in `folders` and writes `page`.

    Raises:
        OSError, ValueError: a file cannot be read or written; an older page is left as it was.
    """
    content = page_content(folders, page)
    title = content["runs"][0]["name"] if len(folders) == 1 else f"{len(folders)} runs"
    data = json.dumps(finite(content), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    scripts = [PAGES / f"{name}.js" for name in SCRIPTS]
    text = page_text(f"{title} – run report", data, scripts, [PAGES / "run_report.css"]).encode("utf-8", "replace")
    os.replace(write_beside(page, lambda file: file.write(text), lambda _: None), page)
    flush_folder(page.parent)


def _recorded(folder: Path) -> bool:
    return any((folder / name).is_file() for name in ("metrics.jsonl", "log.jsonl"))

"""Take the pictures of docs/pictures: train a run of each family's quickstart, open its page, ask, take a picture.

Each run is trained anew, so that no picture shows a former config; PAGE=RUN shows an existing run instead. Trainings
take half an hour on 2 cores.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from commands.answers.answer_service import AnswerService
from commands.answers.compared_runs import ComparedAnswers
from commands.report.main import main as write_report
from tests.conftest import REPOSITORY
from tests.screenshots.pages import PAGES, SEARCHED, SWEEP, ShownPage
from tests.screenshots.picture import take
from tests.support.demo import demo_server, page_driver
from tests.support.outputs.browser import Browser, missing

_SECONDS = 120.0  # for an answer


def main() -> int:
    """Take the pictures; return 1 without a browser."""
    names = [*(page.name for page in PAGES), SWEEP]
    parser = argparse.ArgumentParser(prog="python -m tests.screenshots", description=__doc__)
    parser.add_argument("pages", nargs="*", metavar="PAGE[=RUN]", help=f"pages, of {', '.join(names)}; default: all")
    parser.add_argument("--runs", type=Path, default=REPOSITORY / "runs/screenshots", help="folder of the runs")
    parser.add_argument("--output", type=Path, default=REPOSITORY / "docs/pictures", help="folder of the pictures")
    parser.add_argument("--width", type=int, default=1200, help="width of the window in pixels")
    parser.add_argument("--dark", action="store_true", help="as a visitor sees it who prefers dark pages")
    options = parser.parse_args()
    given = dict(page.partition("=")[::2] for page in options.pages or names)
    if unknown := given.keys() - set(names):
        parser.error(f"found {', '.join(sorted(unknown))}, expected some of {', '.join(names)}")
    if reason := missing():
        print(reason, file=sys.stderr)
        return 1
    options.output.mkdir(parents=True, exist_ok=True)
    output, runs = options.output.absolute(), options.runs.absolute()
    runs.parent.mkdir(exist_ok=True)
    os.chdir(REPOSITORY)
    os.environ["LOCKSTEP_RUNS"] = str(runs)
    for shown in PAGES:
        if shown.name in given:
            run = given[shown.name] or _trained(shown, runs)
            shot = partial(take, width=options.width, dark=options.dark)
            _take_demo(shown, run, partial(shot, path=output / f"demo-{shown.name}.png"))
            if shown.report:
                reported = [run] if shown.beside is None else [shown.beside, run]
                paths = [str(runs / name) for name in reported]
                _take_report(paths, partial(shot, path=output / f"{shown.report}.png"))
    if SWEEP in given:
        study = given[SWEEP] or _searched(runs)
        shot = partial(take, width=options.width, dark=options.dark, first="#study h3")
        _take_report([str(runs / study)], partial(shot, path=output / f"report-{SWEEP}.png"))
    return 0


def _searched(runs: Path) -> str:
    """Run the study from the start to the end."""
    shutil.rmtree(runs / SWEEP, ignore_errors=True)
    _run("sweep", *SEARCHED, "--run_name", SWEEP)
    return SWEEP


def _trained(shown: ShownPage, runs: Path) -> str:
    """Train the run of a page from the start, with the present config."""
    if (runs / shown.run).is_dir():
        shutil.rmtree(runs / shown.run)
    for options in shown.trainings:
        name = ["--run_name", shown.run] if options == shown.trainings[-1] else []
        _run("fit", *options, *name)
    if shown.report:
        _run("test", "--run_name", shown.run)
    return shown.run


def _run(*arguments: str) -> None:
    subprocess.run([sys.executable, "train.py", *arguments], cwd=REPOSITORY, check=True)


def _take_demo(shown: ShownPage, run: str, shot: Callable[[Browser], None]) -> None:
    demo: AnswerService = demo_server.loaded(run)
    title = run
    if shown.beside is not None:
        demo, title = (
            ComparedAnswers([demo_server.run_of(shown.beside), demo_server.run_of(run)]),
            f"{shown.beside} and {run}",
        )
    with (
        tempfile.TemporaryDirectory() as folder,
        demo_server.served(demo, title) as address,
        Browser(Path(folder)) as page,
    ):
        page.open(address)
        for step in shown.steps:
            page.run(step)
        page_driver.ask(page, _SECONDS)
        page_driver.wait(page, "[...document.images].every((image) => image.complete)")
        shot(page)


def _take_report(runs: list[str], shot: Callable[[Browser], None]) -> None:
    with tempfile.TemporaryDirectory() as folder, Browser(Path(folder)) as page:
        path = Path(folder, "report.html")
        write_report([*runs, "--output", str(path)])
        page.open(path.as_uri())
        shot(page)


if __name__ == "__main__":
    sys.exit(main())

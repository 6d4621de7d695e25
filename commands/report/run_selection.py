"""Selects the runs of a page from the names and directories on the command line."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from commands.report.study_summary import SUMMARY, StudySummary, read_study
from engine.io.json_records import describe_names


class SelectedRuns(NamedTuple):
    """Runs of a page."""

    folders: Sequence[Path]
    """Run directories, each once."""
    study: StudySummary | None
    """The study that was given alone, of which the runs are the trials."""
    messages: Sequence[str]
    """What was skipped, in the order in which it was found."""
    incomplete: Sequence[str]
    """Those of the messages that name missing records, which the page shows."""


def select_runs(names: Sequence[str], runs: Path) -> SelectedRuns:
    """Return the run directories of names, with the trials of each study in its place.

    Paths that are neither runs nor studies are skipped with a message if another is one, as `runs/*` matches some.

    Args:
        names: names or directories of runs and studies.
        runs: directory of all runs.

    Raises:
        FileNotFoundError: a name does not exist, or no path is a run.
        ValueError: a study has no trial that has started, or its summary is malformed.
    """
    expanded, study, incomplete = expand_studies(names, runs)
    skipped = [name for name in expanded if Path(name).exists() and not is_run(Path(name)) and not is_run(runs / name)]
    if len(skipped) == len(expanded):  # the error names the first of them
        skipped = []
    folders = [find_run_directory(name, runs) for name in expanded if name not in skipped]
    unique: dict[Path, Path] = {}
    repeated = []
    for folder in folders:
        if unique.setdefault(folder.resolve(), folder) is not folder:
            repeated.append(folder)
    messages = [
        *incomplete,
        *(f"{name} is not a run directory, skipped" for name in skipped),
        *(f"{folder} is given twice and read once" for folder in repeated),
    ]
    return SelectedRuns(list(unique.values()), study, messages, incomplete)


def expand_studies(names: Sequence[str], runs: Path) -> tuple[list[str], StudySummary | None, list[str]]:
    """Return the names with the runs of its trials for each study, the study given alone, and messages.

    Raises:
        ValueError: a study has no trial that has started, or its summary is malformed.
    """
    expanded: list[str] = []
    messages: list[str] = []
    study = None
    for name in names:
        folder = next((path for path in (Path(name), runs / name) if (path / SUMMARY).is_file()), None)
        if folder is None:
            expanded.append(name)
            continue
        summary = read_study(folder)
        expanded += _trial_folders(folder, summary)
        messages += missing_trials(folder, summary)
        study = summary if len(names) == 1 else None
    return expanded, study, messages


def missing_trials(folder: Path, summary: StudySummary) -> list[str]:
    """Return a message if trials of a study have trained and have no run directory; else no message."""
    trained, missing = _trained(folder, summary)
    if not missing:
        return []
    counts = f"{len(missing)} of {len(trained)}"
    return [f"{folder}: trials without a run directory are skipped ({counts}): {describe_names(missing)}"]


def _trained(folder: Path, summary: StudySummary) -> tuple[list[str], list[str]]:
    """Return the names of the trials that have trained, and of those among them without a run directory."""
    # A trial that fails before its training has no record, and neither has a trial that has just started.
    trained = [trial.name for trial in summary.trials if trial.value is not None]
    return trained, [name for name in trained if not is_run(folder / name)]


def _trial_folders(folder: Path, summary: StudySummary) -> list[str]:
    """Return the run directories of the trials.

    Raises:
        ValueError: no trial has a run directory.
    """
    folders = [str(folder / trial.name) for trial in summary.trials if is_run(folder / trial.name)]
    _, missing = _trained(folder, summary)
    if not folders and missing:
        raise ValueError(
            f"{folder}: found no run directory of a trial, expected {describe_names(missing)}, which have trained; "
            f"restore them beside {SUMMARY}"
        )
    if not folders:
        raise ValueError(f"{folder}: no trial of the study has started its training; start the report again later")
    return folders


def find_run_directory(name: str, runs: Path) -> Path:
    """Return the directory of a run.

    Args:
        name: path of a directory, else the name of a run.
        runs: directory of all runs.

    Raises:
        FileNotFoundError: there is none, or it contains no record of a run.
    """
    folders = [path for path in (Path(name), runs / name) if path.is_dir()]
    if not folders:
        existing = ", ".join(sorted(folder.name for folder in runs.glob("*") if is_run(folder))) or "none"
        raise FileNotFoundError(f"no run {name!r}: {runs / name} is not a directory; existing runs: {existing}")
    recorded = [path for path in folders if is_run(path)]
    if not recorded:
        raise FileNotFoundError(f"{folders[0]} has neither metrics.jsonl nor log.jsonl, so it is not a run directory")
    return recorded[0]


def is_run(folder: Path) -> bool:
    """Return whether a folder contains the record of a run."""
    return any((folder / name).is_file() for name in ("metrics.jsonl", "log.jsonl"))


def default_page(folders: Sequence[Path], study: StudySummary | None) -> Path:
    """Return the page of runs; only a study writes report.html into the folder of a study."""
    parent = folders[0].parent
    if study:
        return parent / "report.html"
    if len(folders) == 1:
        return folders[0] / "report.html"
    return parent / ("compared.html" if (parent / SUMMARY).is_file() else "report.html")

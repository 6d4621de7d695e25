"""Writes reports: self-contained HTML files (`engine.io.html_page`), each with the same content as JSON beside it."""

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import IO, NamedTuple

from engine.io.atomic_file import flush_folder, remove, write_temp
from engine.io.html_page import dump_data, html_page

ANSWERS = Path(__file__).parents[1] / "pages/answers.js"
"""Script of a prediction report. A family's own script follows it and calls `predictionReport`."""

Grade = Mapping[str, tuple[float, float]]
"""{outcome: (points reached, points possible)}"""


class MetricRow(NamedTuple):
    """Values of one metric for the model, the model without the modality (blind), and rules that know the answer.

    A value is None if it was not measured.
    """

    task: str  # "all" for all tasks together
    name: str
    model: float | None
    blind: float | None = None
    rules: float | None = None
    percent: bool = True  # whether the metric is a share; higher is better


def metric_rows(outcomes: Iterable[str], graded: Iterable[Mapping[str, Grade]]) -> list[MetricRow]:
    """Compute the share of the points reached, for each outcome that was graded.

    Args:
        outcomes: names, in the order of the rows; `TASK/NAME` belongs to one task, `NAME` to all.
        graded: {"model", "blind" or "rules": grade of the answer} of each sample.
    """
    totals: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(lambda: [0.0, 0.0]))
    for systems in graded:
        for system, grade in systems.items():
            for name, (reached, possible) in grade.items():
                totals[name][system][0] += reached
                totals[name][system][1] += possible
    rows = []
    for name in outcomes:
        if name in totals:
            task, _, measure = name.rpartition("/")
            shares = {system: reached / possible for system, (reached, possible) in totals[name].items() if possible}
            model, blind, rules = (shares.get(system) for system in ("model", "blind", "rules"))
            rows.append(MetricRow(task or "all", outcome_title(measure), model, blind, rules))
    return rows


def outcome_title(measure: str) -> str:
    """Return the name of an outcome as the reports display it."""
    return measure.replace("_", " ").replace(" percent", "\N{NO-BREAK SPACE}%")


def write_report(
    folder: Path,
    stem: str,
    title: str,
    content: Mapping[str, object],
    scripts: Sequence[Path],
    styles: Sequence[Path] = (),
) -> Path:
    """Write `STEM.html` and `STEM.json` to a folder, which is created if needed.

    Args:
        folder: destination.
        stem: stem of the file names.
        title: title of the page.
        content: content of the JSON; non-finite numbers become null.
        scripts: scripts of the page, after the shared report.js.
        styles: style sheets of the page, after the shared report.css.

    Returns:
        Path of the HTML file.

    Raises:
        OSError: the disk rejected a file; an existing report is unchanged.
    """
    data = dump_data(content)
    texts = {folder / f"{stem}.json": data + "\n", folder / f"{stem}.html": html_page(title, data, scripts, styles)}
    temporary: dict[Path, Path] = {}
    try:
        for path, text in texts.items():
            # A model that generates bytes can produce half a surrogate pair, which UTF-8 cannot encode.
            encoded = text.encode("utf-8", "replace")
            temporary[path] = write_temp(path, partial(_write, encoded), lambda _: None)
    except BaseException:
        for written in temporary.values():
            remove(written)
        raise
    # Both files are written in full before the first gets its name, so a full disk leaves the old report.
    for path, written in temporary.items():
        os.replace(written, path)
    flush_folder(folder)
    return folder / f"{stem}.html"


def _write(content: bytes, file: IO[bytes]) -> None:
    file.write(content)

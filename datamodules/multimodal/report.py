"""Reports: one HTML file each that needs nothing else, and the same figures as JSON beside.

The pages are made by the browser from the JSON that they hold. Data get onto them as text, never as markup, and the
page's own policy lets no script run but its own, so an answer of a model cannot do anything.
"""

import base64
import hashlib
import html
import json
import math
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Any, NamedTuple

from engine.durable_file import flush_folder, remove, write_beside

PAGES = Path(__file__).with_name("pages")

ANSWERS = PAGES / "answers.js"
"""The script of a prediction report; a family's own, which follows it, calls `predictionReport`."""

Grade = Mapping[str, tuple[float, float]]
"""{outcome: (points reached, points possible)}"""


class Figure(NamedTuple):
    """A result of the model, of the same model blind, and of rules that know the answer.

    None where there is none.
    """

    task: str  # "all" for all tasks together
    name: str
    model: float | None
    blind: float | None = None
    rules: float | None = None
    percent: bool = True  # whether it is a share, of which more is better


def figures_of(outcomes: Iterable[str], graded: Iterable[Mapping[str, Grade]]) -> list[Figure]:
    """Shares of the points, of each outcome that was graded.

    Args:
        outcomes: names, in the order of the figures; `TASK/NAME` is of a task, NAME of all.
        graded: of each sample, {"model", "blind" or "rules": its answer's grade}.
    """
    totals: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(lambda: [0.0, 0.0]))
    for systems in graded:
        for system, grade in systems.items():
            for name, (reached, possible) in grade.items():
                totals[name][system][0] += reached
                totals[name][system][1] += possible
    figures = []
    for name in outcomes:
        if name in totals:
            task, _, measure = name.rpartition("/")
            shares = {system: reached / possible for system, (reached, possible) in totals[name].items() if possible}
            figures.append(Figure(task or "all", title_of(measure), **{"model": None, **shares}))
    return figures


def title_of(measure: str) -> str:
    """An outcome's name as the reports write it."""
    return measure.replace("_", " ").replace(" percent", "\N{NO-BREAK SPACE}%")


def write_report(
    folder: Path,
    stem: str,
    title: str,
    content: Mapping[str, Any],
    scripts: Sequence[Path],
    styles: Sequence[Path] = (),
) -> Path:
    """Writes `STEM.html` and `STEM.json` into a folder, which is made if it is not there.

    Args:
        content: what the JSON holds; numbers that JSON does not know become null.
        scripts: the page's, after what all reports share (report.js).
        styles: the page's, after what all reports share (report.css).

    Returns:
        The HTML file.

    Raises:
        OSError: the disk did not take it; an older report is left as it was.
    """
    data = json.dumps(finite(content), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    texts = {folder / f"{stem}.json": data + "\n", folder / f"{stem}.html": page_text(title, data, scripts, styles)}
    hidden: dict[Path, Path] = {}
    try:
        for path, text in texts.items():
            # A model that generates bytes can answer with half a character, which UTF-8 cannot hold.
            whole = text.encode("utf-8", "replace")
            hidden[path] = write_beside(path, lambda file, whole=whole: file.write(whole), lambda _: None)
    except BaseException:
        for written in hidden.values():
            remove(written)
        raise
    for path, written in hidden.items():
        os.replace(written, path)
    flush_folder(folder)
    return folder / f"{stem}.html"


def page_text(title: str, data: str, scripts: Sequence[Path], styles: Sequence[Path]) -> str:
    """A page that holds all it needs; `data` is JSON, which its scripts find in `content`."""
    style = _source([PAGES / "report.css", *styles])
    script = _source([PAGES / "report.js", *scripts])
    parts = {
        "title": html.escape(title),
        "style": style,
        "script": script,
        "style_hash": _hash(style),
        "script_hash": _hash(script),
        # Inside <script> the browser looks for nothing but "</script" and "<!--"; JSON reads \u003c as "<".
        "data": data.replace("<", "\\u003c"),
    }
    return Template(_source([PAGES / "report.html"])).substitute(parts)


def _source(paths: Sequence[Path]) -> str:
    return "".join(path.read_text(encoding="utf-8") for path in paths)


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


def finite(value: Any) -> Any:
    """The same with None for numbers that JSON does not know."""
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value

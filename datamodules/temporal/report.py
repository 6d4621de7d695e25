"""The reports of the temporal family: one HTML file each that needs nothing else, and the same figures as JSON beside.

The pages are made by the browser from the JSON that they hold. Data get onto them as text, never as markup, and the
page's own policy lets no script run but its own, so an answer of a model cannot do anything.
"""

import base64
import hashlib
import html
import json
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Any, NamedTuple

from datamodules.temporal.data_summary import choose_examples, summarise
from datamodules.temporal.shown import Shown
from engine.durable_file import flush_folder, remove, write_beside

PAGES = Path(__file__).with_name("pages")
EXAMPLES = 24


class Figure(NamedTuple):
    """A result of the model, of the same model without the series, and of the rules that know the curve.

    None where there is none.
    """

    task: str  # "all" for all tasks together
    name: str
    model: float | None
    blind: float | None = None
    rules: float | None = None
    percent: bool = True  # whether it is a share, of which more is better


def write_data_report(
    folder: Path,
    samples: Sequence[Shown],
    about: Mapping[str, str] | None = None,
    count_tokens: Callable[[str], int] | None = None,
) -> Path:
    """Writes `data_report.html` and `.json` into a folder.

    Args:
        folder: where to; is made if it is not there.
        samples: what is looked at. Their numbers are counted over all, curves are shown of some of each task and class.
        about: what the report is of (split, seed, format, ...), shown in this order at its head.
        count_tokens: a text's number of tokens.

    Returns:
        The HTML file.

    Raises:
        OSError: the disk did not take it; an older report is left as it was.
    """
    content = {
        "about": dict(about or {}),
        "summary": summarise(samples, count_tokens),
        "records": [sample.as_record() for sample in choose_examples(samples, EXAMPLES)],
    }
    return _write(folder, "data_report", "Data report", content)


def write_prediction_report(
    folder: Path,
    records: Iterable[Shown],
    figures: Iterable[Figure],
    about: Mapping[str, str] | None = None,
) -> Path:
    """Writes `prediction_report.html` and `.json` into a folder.

    Args:
        folder: where to; is made if it is not there.
        records: the answered questions, each with its answer.
        figures: of all that was tested, which may be more than what is shown.
        about: run, checkpoint and what else says whose answers these are, shown in this order at the head.

    Returns:
        The HTML file.

    Raises:
        OSError: the disk did not take it; an older report is left as it was.
    """
    content = {
        "about": dict(about or {}),
        "figures": [figure._asdict() for figure in figures],
        "records": [record.as_record() for record in records],
    }
    return _write(folder, "prediction_report", "Prediction report", content)


def _write(folder: Path, stem: str, title: str, content: dict[str, Any]) -> Path:
    """Writes both files beside their places, and puts them there when both are whole."""
    data = json.dumps(_finite(content), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    texts = {folder / f"{stem}.json": data + "\n", folder / f"{stem}.html": _page(stem, title, data)}
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


def _page(stem: str, title: str, data: str) -> str:
    style = _source("report.css")
    script = _source("curves.js") + _source(f"{stem}.js")
    parts = {
        "title": html.escape(title),
        "style": style,
        "script": script,
        "style_hash": _hash(style),
        "script_hash": _hash(script),
        # Inside <script> the browser looks for nothing but "</script" and "<!--"; JSON reads \u003c as "<".
        "data": data.replace("<", "\\u003c"),
    }
    return Template(_source("report.html")).substitute(parts)


def _source(name: str) -> str:
    return (PAGES / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


def _finite(value: Any) -> Any:
    """The same with None for numbers that JSON does not know."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value

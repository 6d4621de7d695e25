"""Writes the reports of the temporal family: on the training data, and on the answers of a test."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from datamodules.multimodal.reports.html_report import ANSWERS, MetricRow, write_report
from datamodules.temporal.timelines.reports.data_summary import choose_examples, summarize_samples
from datamodules.temporal.timelines.reports.sample_view import SampleView

PAGES = Path(__file__).parents[2] / "pages"
EXAMPLES = 24

_LONGEST_NAME = 100  # characters


def write_data_report(
    folder: Path,
    samples: Sequence[SampleView],
    about: Mapping[str, str] | None = None,
    count_tokens: Callable[[str], int] | None = None,
) -> Path:
    """Write `data_report.html` and `.json` to a folder.

    Args:
        folder: destination; created if needed.
        samples: the samples. Statistics cover all of them; curves are shown for some of each task and class.
        about: description of the data (split, seed, format, ...), shown in this order at the head.
        count_tokens: function that returns the number of tokens of a text.

    Returns:
        Path of the HTML file.

    Raises:
        OSError: the disk rejected a file; an existing report is unchanged.
    """
    content = {
        "about": dict(about or {}),
        "summary": summarize_samples(samples, count_tokens),
        "records": [sample.as_record() for sample in choose_examples(samples, EXAMPLES)],
    }
    scripts = [PAGES / "curves.js", PAGES / "data_report.js"]
    return write_report(folder, "data_report", "Data report", content, scripts, [PAGES / "curves.css"])


def write_test_report(
    folder: Path,
    records: Iterable[SampleView],
    metrics: Iterable[MetricRow],
    about: Mapping[str, str] | None = None,
    timelines: str | None = None,
) -> Path:
    """Write `prediction_report.html` and `.json` to a folder; with recorded timelines under a name of their own.

    Args:
        folder: destination; created if needed.
        records: the questions with their answers.
        metrics: metrics of the whole test, which may have more questions than are shown.
        about: run, checkpoint and similar facts, shown in this order at the head.
        timelines: path of the recorded timelines; None for synthetic timelines. The report of `node.csv` is called
            `prediction_report-node`, so it does not replace the report of a test on other timelines.

    Returns:
        Path of the HTML file.

    Raises:
        OSError: the disk rejected a file; an existing report is unchanged.
    """
    content = {
        "about": dict(about or {}),
        "metrics": [row._asdict() for row in metrics],
        "records": [record.as_record() for record in records],
    }
    scripts = [PAGES / "curves.js", ANSWERS, PAGES / "prediction_report.js"]
    return write_report(folder, _stem(timelines), "Prediction report", content, scripts, [PAGES / "curves.css"])


def _stem(timelines: str | None) -> str:
    """Return the name of the files of a prediction report, without extension."""
    if timelines is None:
        return "prediction_report"
    name = re.sub(r"[^\w.-]+", "_", Path(timelines).resolve().stem)[:_LONGEST_NAME]
    return f"prediction_report-{name or 'recorded'}"

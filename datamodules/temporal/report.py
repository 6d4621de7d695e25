"""The reports of the temporal family: on what it is trained with, and on what it answered."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from datamodules.multimodal.report import ANSWERS, Figure, write_report
from datamodules.temporal.data_summary import choose_examples, summarise
from datamodules.temporal.shown import Shown

PAGES = Path(__file__).with_name("pages")
EXAMPLES = 24


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
    scripts = [PAGES / "curves.js", PAGES / "data_report.js"]
    return write_report(folder, "data_report", "Data report", content, scripts, [PAGES / "curves.css"])


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
    scripts = [PAGES / "curves.js", ANSWERS, PAGES / "prediction_report.js"]
    return write_report(folder, "prediction_report", "Prediction report", content, scripts, [PAGES / "curves.css"])

"""Reports a model's answers about images in `prediction_report.html`, with the images embedded."""

import base64
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from datamodules.multimodal.reports.html_report import ANSWERS, Grade, MetricRow, outcome_title, write_report
from datamodules.multimodal.reports.word_diff import word_differences

if TYPE_CHECKING:
    from PIL.Image import Image

PAGES = Path(__file__).with_name("pages")

_EDGE = 320
"""Maximum length of the longer edge of an embedded image, in pixels."""

_SMALL = 96
"""Maximum edge of an image that is stored without loss; larger images are stored as JPEG."""


class AnsweredQuestion(NamedTuple):
    """A sample of the report: the question, its images, and the answers with and without them."""

    sample: int
    kind: str  # kind of the question; empty if there are none
    pictures: Sequence["Image"]
    question: str
    truth: str
    answer: str
    blind: str  # answer of the same model to black images
    grade: Grade  # grade of the answer, the most informative outcome first; empty if the reference is unknown
    blind_grade: Grade

    def as_record(self) -> dict[str, Any]:
        """Return the record of the JSON file."""
        truth, answer = word_differences(self.truth, self.answer)
        return {
            "sample": self.sample,
            "task": self.kind or "chat",
            "class": None,
            "pictures": [thumbnail_data_url(picture) for picture in self.pictures],
            "question": self.question,
            "truth": self.truth,
            "answer": self.answer,
            "blind": self.blind,
            "truth_parts": truth,
            "answer_parts": answer,
            "outcomes": {outcome_title(name.rpartition("/")[2]): list(points) for name, points in self.grade.items()},
            "errors": _errors(self.grade),
            "blind_errors": _errors(self.blind_grade),
        }


def is_right(grade: Grade) -> bool | None:
    """Return whether the most informative outcome is fully reached; None if nothing was graded."""
    # A grade has the most informative outcome first.
    return next((reached >= possible for reached, possible in grade.values()), None)


def write_test_report(
    folder: Path, answered: Iterable[AnsweredQuestion], metrics: Iterable[MetricRow], about: Mapping[str, str]
) -> Path:
    """Write `prediction_report.html` and `.json` to a folder.

    Args:
        folder: destination; created if needed.
        answered: the questions to show; images are reduced one at a time.
        metrics: metrics of the whole test, which may have more questions than are shown.
        about: run, checkpoint and similar facts, shown in this order at the head.

    Returns:
        Path of the HTML file.

    Raises:
        OSError: the disk rejected a file; an existing report is unchanged.
    """
    content = {
        "about": dict(about),
        "metrics": [row._asdict() for row in metrics],
        "records": [question.as_record() for question in answered],
    }
    scripts = [ANSWERS, PAGES / "prediction_report.js"]
    return write_report(folder, "prediction_report", "Prediction report", content, scripts, [PAGES / "pictures.css"])


def thumbnail_data_url(picture: "Image") -> str:
    """Return an image as a data URI, at most 320 pixels wide and high."""
    picture = picture.convert("RGB")
    picture.thumbnail((_EDGE, _EDGE))
    form, options = ("PNG", {"optimize": True}) if max(picture.size) <= _SMALL else ("JPEG", {"quality": 85})
    file = io.BytesIO()
    picture.save(file, form, **options)
    return f"data:image/{form.lower()};base64,{base64.b64encode(file.getvalue()).decode('ascii')}"


def _errors(grade: Grade) -> list[str] | None:
    right = is_right(grade)
    return None if right is None else [] if right else ["answer"]

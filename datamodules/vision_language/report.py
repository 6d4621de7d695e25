"""The report on what a model answered about images: `prediction_report.html` with the images in it."""

import base64
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from datamodules.multimodal.report import ANSWERS, Figure, Grade, title_of, write_report
from datamodules.multimodal.word_differences import word_differences

if TYPE_CHECKING:
    from PIL.Image import Image

PAGES = Path(__file__).with_name("pages")

_EDGE = 320
"""Pixels of a picture's longer edge, at most."""

_SMALL = 96
"""Pictures up to this edge are stored as they are, others as photographs."""


class AnsweredQuestion(NamedTuple):
    """One sample with what was answered."""

    sample: int
    kind: str  # of question; nothing where there are none
    pictures: Sequence["Image"]
    question: str
    truth: str
    answer: str
    blind: str  # the same model's answer to black images
    grade: Grade  # of the answer; the outcome that says most first, nothing where the right answer is not known
    blind_grade: Grade

    def as_record(self) -> dict[str, Any]:
        """What the JSON file holds of it."""
        truth, answer = word_differences(self.truth, self.answer)
        return {
            "sample": self.sample,
            "task": self.kind or "chat",
            "class": None,
            "pictures": [data_uri(picture) for picture in self.pictures],
            "question": self.question,
            "truth": self.truth,
            "answer": self.answer,
            "blind": self.blind,
            "truth_parts": truth,
            "answer_parts": answer,
            "outcomes": {title_of(name.rpartition("/")[2]): list(points) for name, points in self.grade.items()},
            "errors": _errors(self.grade),
            "blind_errors": _errors(self.blind_grade),
        }


def is_right(grade: Grade) -> bool | None:
    """By the outcome that says most; None where nothing was graded."""
    return next((reached >= possible for reached, possible in grade.values()), None)


def write_prediction_report(
    folder: Path, answered: Iterable[AnsweredQuestion], figures: Iterable[Figure], about: Mapping[str, str]
) -> Path:
    """Writes `prediction_report.html` and `.json` into a folder.

    Args:
        folder: where to; is made if it is not there.
        answered: what is shown; pictures are kept small, one at a time.
        figures: of all that was tested, which may be more than what is shown.
        about: run, checkpoint and what else says whose answers these are, shown in this order at the head.

    Returns:
        The HTML file.

    Raises:
        OSError: the disk did not take it; an older report is left as it was.
    """
    content = {
        "about": dict(about),
        "figures": [figure._asdict() for figure in figures],
        "records": [question.as_record() for question in answered],
    }
    scripts = [ANSWERS, PAGES / "prediction_report.js"]
    return write_report(folder, "prediction_report", "Prediction report", content, scripts, [PAGES / "pictures.css"])


def data_uri(picture: "Image") -> str:
    """A picture in a page's own text, at most 320 pixels wide and high."""
    picture = picture.convert("RGB")
    picture.thumbnail((_EDGE, _EDGE))
    form, options = ("PNG", {"optimize": True}) if max(picture.size) <= _SMALL else ("JPEG", {"quality": 85})
    file = io.BytesIO()
    picture.save(file, form, **options)
    return f"data:image/{form.lower()};base64,{base64.b64encode(file.getvalue()).decode('ascii')}"


def _errors(grade: Grade) -> list[str] | None:
    right = is_right(grade)
    return None if right is None else [] if right else ["answer"]

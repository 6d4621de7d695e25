"""Grades answers about scenes."""

from datamodules.vision_language.scenes.captions import object_f1
from datamodules.vision_language.scenes.question_types import KINDS
from datamodules.vision_language.scenes.tasks import CAPTION, SceneSample

OUTCOMES = (
    "exact",  # all samples except questions with unseen wordings
    "questions/exact",
    "captions/exact",
    "captions/object_f1",
    "binding/exact",  # kinds of questions that find one property of an object by another
    "unseen_wording/exact",  # questions with known words in new combinations
    *(f"{name}/exact" for name in KINDS),
)
"""Names of the outcomes, the most informative first."""


def normalize_answer(text: str) -> str:
    """Return the text in lower case, without surplus white space and a final period."""
    return " ".join(text.lower().split()).rstrip(".")


def grade(sample: SceneSample, text: str) -> dict[str, tuple[float, float]]:
    """Return {outcome: (points reached, points possible)} of an answer to a sample."""
    text = normalize_answer(text)
    exact = float(text == sample.answer), 1.0
    if sample.kind == CAPTION:
        f1 = object_f1(text, sample.answer), 1.0
        return {"exact": exact, "captions/exact": exact, "captions/object_f1": f1}
    if not sample.seen_wording:
        return {"unseen_wording/exact": exact}
    names = ["exact", "questions/exact", f"{sample.kind}/exact"]
    if KINDS[sample.kind].binding:
        names.append("binding/exact")
    return dict.fromkeys(names, exact)

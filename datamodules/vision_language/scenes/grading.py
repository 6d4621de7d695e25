"""How right an answer is."""

from datamodules.vision_language.scenes.captions import object_f1
from datamodules.vision_language.scenes.questions import KINDS
from datamodules.vision_language.scenes.samples import CAPTION, SceneSample

OUTCOMES = (
    "exact",  # all samples but questions in unseen wordings
    "questions/exact",
    "captions/exact",
    "captions/object_f1",
    "binding/exact",  # the kinds of questions that find one property of a thing by another
    "unseen_wording/exact",  # questions in words that training has, put together as it never has them
    *(f"{name}/exact" for name in KINDS),
)
"""What is measured, the measure that says most first."""


def normalised(text: str) -> str:
    """Without what does not make an answer another: capitals, spaces, a full stop at the end."""
    return " ".join(text.lower().split()).rstrip(".")


def grade(sample: SceneSample, text: str) -> dict[str, tuple[float, float]]:
    """{outcome: (points reached, points possible)} of an answer to a sample."""
    said = normalised(text)
    exact = float(said == sample.answer), 1.0
    if sample.kind == CAPTION:
        f1 = object_f1(said, sample.answer), 1.0
        return {"exact": exact, "captions/exact": exact, "captions/object_f1": f1}
    if not sample.seen_wording:
        return {"unseen_wording/exact": exact}
    names = ["exact", "questions/exact", f"{sample.kind}/exact"]
    if KINDS[sample.kind].binding:
        names.append("binding/exact")
    return dict.fromkeys(names, exact)

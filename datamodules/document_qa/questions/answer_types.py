"""What kind of answer a text is, where nobody has told."""

import re

from datamodules.document_qa.question import UNANSWERABLE, AnswerType

_NUMBER = re.compile(
    r"[~≈±<>≤≥]?\s*[-+−]?(\d{1,3}(,\d{3})+|\d+)?([.,]\d+|(?<=\d))([eE][-+]?\d+)?"  # 3 · 3.5 · 1,000 · 1e-3
    r"\s*([^\W\d_]|[%‰°Ωµμ/·²³^*.\-(){}]|\b\d\b){0,12}"  # mm · A · °C · kg/m³ · 毫米
)
_ANCHORS = "left|right|above|below|top|bottom|upper|lower|over|under|underneath|beneath|inside|outside|behind|in front"
_RELATION = re.compile(
    rf"(?:it is |at |in |on |to )?(?:the )?(?:{_ANCHORS})(?:[- ](?:{_ANCHORS}))?(?: (?:side|corner|part))?"
    r"(?: of .{1,60}| .{1,20})?\.?|.{1,60}(?:is|are|lies|sits) (?:to |on |at )?(?:the )?"
    rf"(?:{_ANCHORS})\b.{{0,60}}|.{{0,40}}[左右上下内外前后]+(?:侧|方|边|面|部|端)[。.]?",
    re.IGNORECASE,
)
_SAYS_NOTHING = ("not answerable", "unanswerable", "not-answerable", "cannot be answered")


def is_unanswerable(answer: str) -> bool:
    """Whether the text says that the document does not answer the question."""
    return answer.strip().rstrip(".").lower() in (UNANSWERABLE, *_SAYS_NOTHING)


def answer_type_of(answer: str) -> AnswerType:
    """The type of a right answer to an open question: a number may have a unit."""
    text = answer.strip()
    if is_unanswerable(text):
        return "unanswerable"
    if _NUMBER.fullmatch(text):
        return "number"
    return "relation" if _RELATION.fullmatch(text) else "string"

"""Figures in a mirror, and the words of their questions with them: what was left of something is right of it.

A mirrored text cannot be read, so this is for drawings without any, which the settings say. A question is left as it
is where its words may mean something else than a direction, or name places otherwise than by one.
"""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from datamodules.document_qa.ablation import on_page
from datamodules.document_qa.altered_document import AlteredDocument
from datamodules.document_qa.document import Chunk, Document
from datamodules.document_qa.question import Question

if TYPE_CHECKING:
    from PIL.Image import Image

Direction = Literal["horizontal", "vertical"]

_PAIRS: dict[Direction, tuple[tuple[str, str], ...]] = {
    "horizontal": (("left", "right"), ("leftmost", "rightmost"), ("leftward", "rightward"), ("左", "右")),
    "vertical": (
        ("above", "below"), ("top", "bottom"), ("upper", "lower"), ("topmost", "bottommost"), ("upward", "downward"),
        ("uppermost", "lowermost"), ("up", "down"), ("上", "下"),
    ),
}  # fmt: skip
_BOTH = (("clockwise", "counterclockwise"), ("顺时针", "逆时针"))

# What tells a place or a direction otherwise, and directions' words that mean something else.
_UNCLEAR = re.compile(
    r"\b(?:columns?|rows?|first|second|third|last|next|north|south|east|west|o'clock|degrees?|angles?|left over|"
    r"(?:is|are) left(?! of)|right[- ]angled?|all right|rights|answers?|statements?|bottom line|top speed|set ?up|"
    r"up to|start ?up|anticlockwise|counter-clockwise)\b"
    "|°|左右|上下|上述|下述|以上|以下|下列|如下|如上|上升|下降|上面|下面|上图|下图|图上|表上|加上|基本上|上一|下一|第一|第二|第三"
    "|最后|东|西|南|北|列|行|角度|点钟",
    re.IGNORECASE,
)


def mirrored(
    questions: Sequence[Question], document: Document, direction: Direction, shown: Sequence[int]
) -> tuple[Sequence[Question], Document]:
    """All figures of a document and its questions in a mirror; as they were where that could alter what is right.

    That is where a question is not about figures alone, where its words are unclear, and where a page that is shown
    says something of directions.
    """
    words = [text for question in questions for text in _texts(question)]
    pages = (document.pages[page - 1] for page in shown)
    said = [chunk.text for page in pages for chunk in page.chunks if chunk.kind != "figure"]
    about_figures = all(question.source == "figure" for question in questions)
    if not about_figures or any(map(_UNCLEAR.search, words)) or any(_told(text, direction) for text in said):
        return questions, document
    return [_mirrored(question, direction) for question in questions], Mirrored(document, direction)


def mirrored_words(text: str, direction: Direction) -> str:
    """A text with each direction as it is in the mirror; done twice it is as it was."""
    swaps = _swaps(direction)
    return _pattern(direction).sub(lambda found: _as_written(swaps[found.group().lower()], found.group()), text)


class Mirrored(AlteredDocument):
    """A document whose figures are mirrored."""

    def __init__(self, document: Document, direction: Direction) -> None:
        super().__init__(document)
        self.direction = direction

    def picture(self, page: int) -> "Image":
        picture = self.document.picture(page).copy()
        for chunk in self.document.pages[page - 1].chunks:
            if chunk.kind == "figure":
                box = on_page(chunk, *picture.size)
                picture.paste(self._turned(picture.crop(box)), box)
        return picture

    def figure(self, chunk: Chunk) -> "Image":
        return self._turned(self.document.figure(chunk))

    def _turned(self, picture: "Image") -> "Image":
        from PIL.Image import Transpose

        horizontal = self.direction == "horizontal"
        return picture.transpose(Transpose.FLIP_LEFT_RIGHT if horizontal else Transpose.FLIP_TOP_BOTTOM)


def _mirrored(question: Question, direction: Direction) -> Question:
    answer = None if question.answer is None else mirrored_words(question.answer, direction)
    return question._replace(
        question=mirrored_words(question.question, direction),
        options=tuple(mirrored_words(option, direction) for option in question.options),
        answer=answer,
        also_right=tuple(mirrored_words(text, direction) for text in question.also_right),
    )


def _texts(question: Question) -> list[str]:
    return [question.question, *question.options, *question.also_right, question.answer or ""]


def _told(text: str, direction: Direction) -> bool:
    return bool(_pattern(direction).search(text))


def _swaps(direction: Direction) -> dict[str, str]:
    pairs = (*_PAIRS[direction], *_BOTH)
    return {**dict(pairs), **{second: first for first, second in pairs}}


def _pattern(direction: Direction) -> re.Pattern[str]:
    words = sorted(_swaps(direction), key=len, reverse=True)
    latin = "|".join(word for word in words if word.isascii())
    return re.compile(rf"\b(?:{latin})\b|{'|'.join(word for word in words if not word.isascii())}", re.IGNORECASE)


def _as_written(word: str, like: str) -> str:
    if like.isupper() and like.lower() != like:
        return word.upper()
    return word.capitalize() if like[:1].isupper() else word

"""Mirrors figures together with the direction words of their questions: "left" becomes "right".

Mirrored text is unreadable, so this is only for drawings without text. A question is not changed if a direction word in
it may have another meaning, or if it describes a place by other means.
"""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from typing_extensions import override

from datamodules.document_qa.types.document import Chunk, Document
from datamodules.document_qa.types.question import Question
from datamodules.document_qa.views.ablation import pixel_box
from datamodules.document_qa.views.document_view import DocumentView

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

_UNCLEAR = re.compile(
    r"\b(?:columns?|rows?|first|second|third|last|next|north|south|east|west|o'clock|degrees?|angles?|left over|"
    r"(?:is|are) left(?! of)|right[- ]angled?|all right|rights|answers?|statements?|bottom line|top speed|set ?up|"
    r"up to|start ?up|anticlockwise|counter-clockwise)\b"
    "|°|左右|上下|上述|下述|以上|以下|下列|如下|如上|上升|下降|上面|下面|上图|下图|图上|表上|加上|基本上|上一|下一|第一|第二|第三"
    "|最后|东|西|南|北|列|行|角度|点钟",
    re.IGNORECASE,
)
"""Other descriptions of places and directions, and direction words with another meaning."""


def mirror_figures(
    questions: Sequence[Question], document: Document, direction: Direction, shown: Sequence[int]
) -> tuple[Sequence[Question], Document]:
    """Mirror all figures of a document and its questions, unless that could change the right answer.

    Nothing is mirrored if a question is not only about figures, if its words are ambiguous, or if a page of the
    context mentions directions.
    """
    words = [text for question in questions for text in _texts(question)]
    pages = (document.pages[page - 1] for page in shown)
    page_texts = [chunk.text for page in pages for chunk in page.chunks if chunk.kind != "figure"]
    about_figures = all(question.source == "figure" for question in questions)
    ambiguous = any(map(_UNCLEAR.search, words))
    if not about_figures or ambiguous or any(_has_direction(text, direction) for text in page_texts):
        return questions, document
    return [_mirror_question(question, direction) for question in questions], MirroredDocument(document, direction)


def mirror_words(text: str, direction: Direction) -> str:
    """Swap the direction words of a text; applied twice, it returns the original text."""
    swaps = _swaps(direction)
    return _pattern(direction).sub(lambda found: _as_written(swaps[found.group().lower()], found.group()), text)


class MirroredDocument(DocumentView):
    """View of a document whose figures are mirrored in its page images; texts and boxes are those of the document."""

    def __init__(self, document: Document, direction: Direction) -> None:
        super().__init__(document)
        self.direction = direction

    @override
    def picture(self, page: int) -> "Image":
        picture = self.document.picture(page).copy()
        for chunk in self.document.pages[page - 1].chunks:
            if chunk.kind == "figure":
                box = pixel_box(chunk, *picture.size)
                picture.paste(self._flip(picture.crop(box)), box)
        return picture

    @override
    def figure(self, chunk: Chunk) -> "Image":
        return self._flip(self.document.figure(chunk))

    def _flip(self, picture: "Image") -> "Image":
        from PIL.Image import Transpose

        horizontal = self.direction == "horizontal"
        return picture.transpose(Transpose.FLIP_LEFT_RIGHT if horizontal else Transpose.FLIP_TOP_BOTTOM)


def _mirror_question(question: Question, direction: Direction) -> Question:
    answer = None if question.answer is None else mirror_words(question.answer, direction)
    return question._replace(
        question=mirror_words(question.question, direction),
        options=tuple(mirror_words(option, direction) for option in question.options),
        answer=answer,
        also_right=tuple(mirror_words(text, direction) for text in question.also_right),
    )


def _texts(question: Question) -> list[str]:
    return [question.question, *question.options, *question.also_right, question.answer or ""]


def _has_direction(text: str, direction: Direction) -> bool:
    return bool(_pattern(direction).search(text))


def _swaps(direction: Direction) -> dict[str, str]:
    pairs = (*_PAIRS[direction], *_BOTH)
    return {**dict(pairs), **{second: first for first, second in pairs}}


def _pattern(direction: Direction) -> re.Pattern[str]:
    # Longest first, as a pattern takes the first alternative that matches. Chinese is written without spaces, so \b is
    # for Latin words only.
    words = sorted(_swaps(direction), key=len, reverse=True)
    latin = "|".join(word for word in words if word.isascii())
    return re.compile(rf"\b(?:{latin})\b|{'|'.join(word for word in words if not word.isascii())}", re.IGNORECASE)


def _as_written(word: str, like: str) -> str:
    if like.isupper() and like.lower() != like:
        return word.upper()
    return word.capitalize() if like[:1].isupper() else word

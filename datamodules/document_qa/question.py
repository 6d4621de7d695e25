"""A question about a document, wherever it comes from."""

from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol, get_args

from datamodules.document_qa.document import Document

Source = Literal["text", "table", "figure", "hop", "cross", "none"]
"""Where the evidence lies: one kind of chunk; `hop`: in a figure that leads to text or a table; `cross`: in several;
`none`: nowhere, the question cannot be answered."""

SOURCES: tuple[Source, ...] = get_args(Source)

AnswerType = Literal["choice", "string", "number", "relation", "unanswerable"]
"""What is compared, see grading; numbers may have a unit."""

ANSWER_TYPES: tuple[AnswerType, ...] = get_args(AnswerType)

UNANSWERABLE = "not answerable"
"""The answer to a question that its document does not answer."""


class Question(NamedTuple):
    """One question; what is not known is empty."""

    id: str
    question: str
    document: str  # the document's name
    options: tuple[str, ...] = ()  # without their letters; none: an open question
    answer: str | None = None  # in words, also of a choice; None: not known
    right: int | None = None  # the right option's place in `options`
    answer_type: AnswerType | None = None
    evidence_pages: tuple[int, ...] = ()  # from 1
    source: Source | None = None
    where: str = ""  # file and line that it comes from, for messages
    also_right: tuple[str, ...] = ()  # further answers to an open question that count as right: the best one counts


class QuestionSet(Protocol):
    """The questions of a split. Of the same (epoch, index) it gives the same ones, on any process."""

    def __len__(self) -> int: ...

    def name(self, index: int, epoch: int = 0) -> str:
        """Names a sample in messages: its number and where it comes from."""
        ...

    def questions(self, epoch: int, index: int) -> Sequence[Question]:
        """What a sample asks: in training one question or several about one document, else exactly one.

        Raises:
            UnusableSample: it cannot be used; the message names it.
        """
        ...

    def document(self, epoch: int, index: int) -> Document:
        """The document that a sample asks about.

        Raises:
            UnusableSample: it cannot be used; the message names it.
        """
        ...

    def another_document(self, epoch: int, index: int) -> Document:
        """A different one of the same split (for shuffled figures and distractor pages), drawn by (epoch, index)."""
        ...


class Retriever(Protocol):
    """Finds the pages that a question is about, within its document."""

    def rank(self, document: Document, question: Question) -> list[int]:
        """Numbers of pages, the best first; pages that cannot matter may be missing."""
        ...

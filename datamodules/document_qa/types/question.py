"""Defines a question about a document, and the protocols of question sets and retrievers."""

from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol, get_args

from datamodules.document_qa.types.document import Document

Source = Literal["text", "table", "figure", "hop", "cross", "none"]
"""Where the evidence is: in one kind of chunk; `hop`: in a figure that refers to text or a table; `cross`: in several
kinds; `none`: nowhere, the question is unanswerable."""

SOURCES: tuple[Source, ...] = get_args(Source)

SplitName = Literal["train", "validation", "test", "predict"]
"""Name of a split of the questions."""

AnswerType = Literal["choice", "string", "number", "relation", "unanswerable"]
"""How an answer is graded, see grading; numbers may have a unit."""

ANSWER_TYPES: tuple[AnswerType, ...] = get_args(AnswerType)

UNANSWERABLE = "not answerable"
"""The answer to an unanswerable question."""

OPTION_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
"""Letters of options in prompts, files and predictions: a question has at most 26 options."""


class Question(NamedTuple):
    """A question. Unknown fields are empty or None."""

    id: str
    question: str
    document: str  # name of the document
    options: tuple[str, ...] = ()  # without their letters; empty for an open question
    answer: str | None = None  # as text, also of a choice question; None if it is not known
    right: int | None = None  # index of the right option in `options`
    answer_type: AnswerType | None = None
    evidence_pages: tuple[int, ...] = ()  # from 1
    source: Source | None = None
    where: str = ""  # file and line of the question, for messages
    also_right: tuple[str, ...] = ()  # further accepted answers to an open question; the best match counts


class QuestionSet(Protocol):
    """The questions of a split: a function of (epoch, index) that is the same on every rank."""

    def __len__(self) -> int: ...

    def name(self, index: int, epoch: int = 0) -> str:
        """Return a name of a sample for messages: its index and origin."""
        ...

    def questions(self, epoch: int, index: int) -> Sequence[Question]:
        """Return the questions of a sample: in training one or more about one document, otherwise exactly one.

        Raises:
            BadSampleError: the sample cannot be used; the message names it.
        """
        ...

    def document(self, epoch: int, index: int) -> Document:
        """Return the document of a sample.

        Raises:
            BadSampleError: the sample cannot be used; the message names it.
        """
        ...

    def another_document(self, epoch: int, index: int) -> Document:
        """Return another document of the split, drawn by (epoch, index), for shuffled figures and distractor pages."""
        ...


class Retriever(Protocol):
    """Ranks the pages of a document for a question."""

    def rank(self, document: Document, question: Question) -> list[int]:
        """Return page numbers, best first; irrelevant pages may be missing."""
        ...

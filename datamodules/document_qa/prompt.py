"""What is said to the assistant: a context, questions about it, and options."""

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

from datamodules.document_qa.question import UNANSWERABLE, Question
from datamodules.multimodal.chat import Message
from datamodules.multimodal.images import MARKER
from datamodules.multimodal.unusable import UnusableSample

AnswerWith = Literal["text", "letter"]
"""What an assistant says of the option that it chooses."""

Language = Literal["en", "zh"]

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


class Wording(NamedTuple):
    """All that a prompt says beside what document and question say."""

    page: str
    unanswerable: str  # what the assistant says to an open question that its document does not answer


WORDINGS: dict[Language, Wording] = {
    "en": Wording("Page {number}", UNANSWERABLE),
    "zh": Wording("第{number}页", "无法回答"),
}

_OPTION = "{letter}. {option}"


class Prompter:
    """Makes chats of contexts and questions.

    Args:
        answer_with: see AnswerWith.
        language: of the words that the prompt adds.
        system: a first message for the assistant; None for none.
        list_options: say which options a question has. Without it a choice question is asked as an open one, and the
            options are told apart by how likely each is as its answer (a cloze, as in Brown et al., 2020).
        control: finds the special tokens of the run's tokenizer in a text; see `plain`.
    """

    def __init__(
        self,
        control: re.Pattern[str],
        answer_with: AnswerWith = "text",
        language: Language = "en",
        system: str | None = None,
        list_options: bool = True,
    ) -> None:
        self.answer_with, self.system, self.list_options = answer_with, system, list_options
        self._read = re.compile(f"{control.pattern}|{re.escape(MARKER)}")
        self.wording = WORDINGS[language]

    def plain(self, text: str) -> str:
        """A text in which nothing is read as a special token or as an image, whatever its author wrote.

        Such words are taken apart by a space. A document about language models has them, and so has an attack.
        """
        text = self._read.sub(lambda word: f"{word.group()[0]} {word.group()[1:]}", text)
        while self._read.search(text):  # one that is left, or that came of another
            text = self._read.sub("", text)
        return text

    def page(self, number: int) -> str:
        """What stands before a page."""
        return self.wording.page.format(number=number)

    def asks(self, question: Question, order: Sequence[int] | None = None) -> str:
        """The question, and its options in some order (None: as they are), one a line, if they are listed.

        Raises:
            UnusableSample: it has more options than there are letters.
        """
        if len(question.options) > len(LETTERS):
            raise UnusableSample(
                f"{where(question)}: found {len(question.options)} options, expected at most {len(LETTERS)}"
            )
        if not self.list_options:
            return self.plain(question.question)
        shown = [question.options[place] for place in order_of(question, order)]
        lines = (_OPTION.format(letter=letter, option=option) for letter, option in zip(LETTERS, shown, strict=False))
        return self.plain("\n".join([question.question, *lines]))

    def says(self, question: Question, option: int, order: Sequence[int] | None = None) -> str:
        """What the assistant says when it chooses an option, given by its place in `question.options`."""
        if self.answer_with == "letter":
            return LETTERS[list(order_of(question, order)).index(option)]
        return self.plain(question.options[option])

    def answers(self, question: Question, order: Sequence[int] | None = None) -> str | None:
        """What the assistant should say; None where it is not known."""
        if question.options:
            return None if question.right is None else self.says(question, question.right, order)
        if question.answer == UNANSWERABLE:
            return self.wording.unanswerable
        return self.plain(question.answer or "") or None

    def messages(self, context: str, turns: Sequence[tuple[str, str | None]]) -> list[Message]:
        """A chat about a context ("": none): [(what is asked, what is answered)]; the last answer may be None."""
        chat = [] if self.system is None else [Message(role="system", content=self.system)]
        for asked, answer in turns:
            chat.append(Message(role="user", content=f"{context}\n\n{asked}" if context else asked))
            context = ""
            if answer is not None:
                chat.append(Message(role="assistant", content=answer))
        return chat


def order_of(question: Question, order: Sequence[int] | None) -> Sequence[int]:
    """The places of the options in the order in which they are shown."""
    return range(len(question.options)) if order is None else order


def turned(question: Question, by: int) -> list[int]:
    """The cyclic order of a question's options that begins with the one at `by`."""
    number = len(question.options)
    return [(place + by) % number for place in range(number)]


def where(question: Question) -> str:
    """Names a question in messages."""
    return f"question {question.id}" + (f" ({question.where})" if question.where else "")

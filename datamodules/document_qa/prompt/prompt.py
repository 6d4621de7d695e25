"""Builds chats: a context, questions about it, and their options."""

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

from datamodules.document_qa.types.question import OPTION_LETTERS, UNANSWERABLE, Question
from datamodules.multimodal.images.tiling import MARKER
from datamodules.multimodal.text.chat_encoder import Message
from engine.data.errors import BadSampleError

AnswerWith = Literal["text", "letter"]
"""How the assistant names the option that it chooses."""

Language = Literal["en", "zh"]


class Wording(NamedTuple):
    """The words that a prompt adds to documents and questions."""

    page: str
    unanswerable: str  # the assistant's answer to an unanswerable open question


WORDINGS: dict[Language, Wording] = {
    "en": Wording("Page {number}", UNANSWERABLE),
    "zh": Wording("第{number}页", "无法回答"),
}

_OPTION = "{letter}. {option}"


class PromptBuilder:
    """Makes chats of contexts and questions.

    Args:
        answer_with: see AnswerWith.
        language: language of the words that prompts add.
        system: system message; None for none.
        list_options: list the options of a question. Otherwise a choice question is asked as an open question, and the
            options are ranked by their likelihood as an answer (a cloze, as in Brown et al., 2020).
        control: matches the special tokens of the run's tokenizer; see `escape`.
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
        self._special = re.compile(f"{control.pattern}|{re.escape(MARKER)}")
        self.wording = WORDINGS[language]

    def escape(self, text: str) -> str:
        """Return a text that contains no special token and no image marker.

        A space splits such words. They occur in documents about language models, and in prompt injections.
        """
        text = self._special.sub(lambda word: f"{word.group()[0]} {word.group()[1:]}", text)
        while self._special.search(text):  # splitting may have created another special token
            text = self._special.sub("", text)
        return text

    def page_heading(self, number: int) -> str:
        """Return the heading of a page."""
        return self.wording.page.format(number=number)

    def question_text(self, question: Question, order: Sequence[int] | None = None) -> str:
        """Return the question, and its options in an order (None: the original), one per line, if they are listed.

        Raises:
            BadSampleError: there are more options than letters.
        """
        if len(question.options) > len(OPTION_LETTERS):
            raise BadSampleError(
                f"{question_label(question)}: found {len(question.options)} options, "
                f"expected at most {len(OPTION_LETTERS)}"
            )
        if not self.list_options:
            return self.escape(question.question)
        options = [question.options[index] for index in display_order(question, order)]
        lines = (
            _OPTION.format(letter=letter, option=option)
            for letter, option in zip(OPTION_LETTERS, options, strict=False)
        )
        return self.escape("\n".join([question.question, *lines]))

    def option_text(self, question: Question, option: int, order: Sequence[int] | None = None) -> str:
        """Return the assistant's answer that chooses an option, given by its index in `question.options`."""
        if self.answer_with == "letter":
            return OPTION_LETTERS[list(display_order(question, order)).index(option)]
        return self.escape(question.options[option])

    def answer_text(self, question: Question, order: Sequence[int] | None = None) -> str | None:
        """Return the assistant's right answer; None if it is not known."""
        if question.options:
            return None if question.right is None else self.option_text(question, question.right, order)
        if question.answer == UNANSWERABLE:
            return self.wording.unanswerable
        return self.escape(question.answer or "") or None

    def messages(self, context: str, turns: Sequence[tuple[str, str | None]]) -> list[Message]:
        """Return a chat about a context ("" for none): [(question, answer)]; the last answer may be None."""
        chat = [] if self.system is None else [Message(role="system", content=self.system)]
        for text, answer in turns:
            chat.append(Message(role="user", content=f"{context}\n\n{text}" if context else text))
            # The context precedes the first question only; later turns refer to it.
            context = ""
            if answer is not None:
                chat.append(Message(role="assistant", content=answer))
        return chat


def display_order(question: Question, order: Sequence[int] | None) -> Sequence[int]:
    """Return the indices of the options in display order."""
    return range(len(question.options)) if order is None else order


def rotated_order(question: Question, by: int) -> list[int]:
    """Return the cyclic order of a question's options that begins with index `by`."""
    number = len(question.options)
    return [(index + by) % number for index in range(number)]


def question_label(question: Question) -> str:
    """Return a name of a question for messages."""
    return f"question {question.id}" + (f" ({question.where})" if question.where else "")

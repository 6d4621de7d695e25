"""Questions about documents as an evaluation asks them: each as one prompt or several, what is scored after each."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset

from datamodules.document_qa.batch import FIRST_CHUNK, QUESTION_ONLY, WHOLE, Asked, Continuations, Shown
from datamodules.document_qa.context import Context, joined_views
from datamodules.document_qa.option_references import refers_to_others
from datamodules.document_qa.prompt import turned, where
from datamodules.document_qa.question import Question
from datamodules.document_qa.readings import Reading, Readings
from datamodules.multimodal.batch import Chat, Images
from datamodules.multimodal.chat import ChatEncoder, Message
from datamodules.multimodal.chat_sets import ChatItem, drawn, encoded
from datamodules.multimodal.images import Views, collate_views, no_views
from datamodules.multimodal.packing import prompts
from datamodules.multimodal.unusable import KnownUnusable
from engine.bad_samples import LeftOut, usable
from engine.sampling import Draw

_ANSWERS = 1 << 14
"""Answers whose tokens are kept in mind."""


class Prompt(NamedTuple):
    """One prompt of a question."""

    variant: int
    chat: Chat
    views: Views
    continuations: tuple[tuple[int, NDArray[np.int64]], ...]  # [(place of the option or -1, tokens of what is said)]


class AskedDocuments(Dataset[Asked]):
    """Batches to be answered, from the shortest questions to the longest, so that little is padding.

    Args:
        readings: the samples; each has one question.
        encoder: makes them chats.
        option_orders: how many cyclic orders of its options a choice question is asked in, WHOLE among them; one
            whose options refer to others is asked as it is alone.
        question_only: ask each once more without its document.
        evidence: of so many first samples, ask with each chunk of the context left out, too; None: of all. Of a context
            with more chunks than `ContextSettings.evidence_chunks` those of the retriever's best pages are.
        in_order: keep the samples' order, in which predictions are written as they come.
        number: of samples, the first ones; None for all.
        leave_out: leave samples out that cannot be used; otherwise they are errors.
    """

    def __init__(
        self,
        readings: Readings,
        encoder: ChatEncoder,
        option_orders: int = 1,
        question_only: bool = True,
        evidence: int | None = 0,
        in_order: bool = False,
        number: int | None = None,
        leave_out: bool = False,
    ) -> None:
        self.readings, self.encoder, self.option_orders = readings, encoder, option_orders
        self.question_only, self.evidence = question_only, evidence
        self.in_order, self.leave_out = in_order, leave_out
        self.number = len(readings) if number is None else number
        self._known: dict[str, NDArray[np.int64]] = {}

    def first(self, number: int) -> "AskedDocuments":
        """Of the first samples alone: the shortest questions would not be a fair choice."""
        return AskedDocuments(
            self.readings, self.encoder, self.option_orders, self.question_only, self.evidence, self.in_order, number,
            self.leave_out,
        )  # fmt: skip

    def __len__(self) -> int:
        return self.number

    def look_through(self) -> None:
        """Reads all samples once, as their order needs, before loaders are forked; and says what the contexts lack."""
        if not self.in_order:
            assert len(self._order) == len(self)
            self.readings.tell_all(self._lengths)

    @cached_property
    def _order(self) -> NDArray[np.int64]:
        if self.in_order:
            return np.arange(len(self))
        return np.argsort([tokens for tokens, _ in self._lengths], kind="stable")

    @cached_property
    def _lengths(self) -> list[tuple[int, int]]:
        """Of each sample its tokens, and the pages that its context leaves out."""
        return [self.readings.length(index) for index in range(len(self))]

    def __getitem__(self, draw: Draw) -> Asked:
        made, indices, left_out = usable(self._order[drawn(draw)], self._made, self.leave_out)
        asked = [prompt for one, _ in made for prompt in one]
        samples = np.repeat(indices, [len(one) for one, _ in made])
        shown = (
            Shown(index, reading.ranked, context.chunks)
            for (_, (reading, context)), index in zip(made, indices.tolist(), strict=True)
        )
        pad = self.encoder.tokenizer.pad
        return Asked(
            prompts([prompt.chat for prompt in asked], samples, pad),
            torch.tensor([prompt.variant for prompt in asked] or [WHOLE], dtype=torch.int64),
            self._images([prompt.views for prompt in asked]),
            self._continuations([prompt.continuations for prompt in asked]),
            left_out,
            tuple(shown),
        )

    # -- one sample --------------------------------------------------------------------------------------------------

    def _made(self, index: int) -> tuple[list[Prompt], tuple[Reading, Context]] | LeftOut:
        try:
            reading = self.readings.reading(0, index)
        except KnownUnusable as error:
            return LeftOut("known", str(error), index)
        context, name = self.readings.context(reading), self.readings.name(index)
        (question,) = reading.questions
        made = [self._prompt(WHOLE, question, context, name)]
        orders = 1 if refers_to_others(question) else min(self.option_orders, len(question.options))
        for turn in range(1, orders):
            made.append(self._prompt(turn, question, context, name))
        if self.question_only:
            made.append(self._prompt(QUESTION_ONLY, question, Context(), name))
        if self.evidence is None or index < self.evidence:
            made += self._without_each_chunk(question, reading, context, name)
        return made, (reading, context)

    def _without_each_chunk(
        self, question: Question, reading: Reading, context: Context, name: str
    ) -> Iterator[Prompt]:
        for place in self._looked_at(reading, context):
            rest = self.readings.builder.without(context, reading.document, place)
            prompt = self._prompt(FIRST_CHUNK + place, question, rest, name)
            # Of an open question what was written is looked at, which only the model knows.
            yield prompt if question.options else prompt._replace(continuations=())

    def _looked_at(self, reading: Reading, context: Context) -> list[int]:
        """The places of the chunks that are left out, in the context's order."""
        most, chunks = self.readings.builder.settings.evidence_chunks, context.chunks
        rank = {page: place for place, page in enumerate(reading.ranked)}
        best = sorted(range(len(chunks)), key=lambda place: (rank.get(chunks[place].page, len(rank)), place))
        return sorted(best[:most])

    def _prompt(self, variant: int, question: Question, context: Context, name: str) -> Prompt:
        prompter, builder = self.readings.prompter, self.readings.builder
        order = turned(question, variant if 0 < variant < FIRST_CHUNK else 0)
        views = joined_views(context, builder.layout)
        messages = prompter.messages(context.text, [(prompter.asks(question, order), None)])
        item = ChatItem(messages, builder.features(context.views), views)
        if question.options:
            said = tuple((place, prompter.says(question, place, order)) for place in range(len(question.options)))
        else:
            answer = prompter.answers(question)
            said = () if answer is None else ((-1, answer),)
        continuations = tuple((option, self._said(question, text)) for option, text in said)
        return Prompt(variant, encoded(self.encoder.prompt, item, name), views, continuations)

    def _said(self, question: Question, text: str) -> NDArray[np.int64]:
        """What the assistant says in tokens, with the end of its turn: the same after any prompt.

        Raises:
            UnusableSample: it cannot be said; the message names the question.
        """
        if text not in self._known:
            if len(self._known) >= _ANSWERS:
                self._known.clear()
            messages = [Message(role="user", content="?"), Message(role="assistant", content=text)]
            item = ChatItem(messages, (), no_views(self.readings.builder.layout))
            chat = encoded(self.encoder.chat, item, where(question))
            self._known[text] = chat.tokens[chat.supervised]
        return self._known[text]

    # -- a batch -----------------------------------------------------------------------------------------------------

    def _images(self, views: Sequence[Views]) -> Images:
        return collate_views(views, self.readings.builder.layout)

    def _continuations(self, said: Sequence[tuple[tuple[int, NDArray[np.int64]], ...]]) -> Continuations:
        rows = [(prompt, option, tokens) for prompt, some in enumerate(said) for option, tokens in some]
        lengths = [len(tokens) for *_, tokens in rows]
        padded = np.full((len(rows), max(lengths, default=1)), self.encoder.tokenizer.pad, np.int64)
        for row, (*_, tokens) in enumerate(rows):
            padded[row, : len(tokens)] = tokens
        numbers = (lengths, [prompt for prompt, *_ in rows], [option for _, option, _ in rows])
        return Continuations(
            torch.from_numpy(padded), *(torch.tensor(some, dtype=torch.int64) for some in numbers)
        )

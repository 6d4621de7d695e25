"""Provides questions of an evaluation as prompts, with the answers to score after each prompt."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset

from datamodules.document_qa.batch import (
    FIRST_CHUNK,
    QUESTION_ONLY,
    WHOLE,
    Continuations,
    EvaluationBatch,
    RetrievedContext,
)
from datamodules.document_qa.prompt.context import Context, sample_views
from datamodules.document_qa.prompt.option_references import refers_to_others
from datamodules.document_qa.prompt.prompt import question_label, rotated_order
from datamodules.document_qa.samples.sample_builder import DocumentSample, SampleBuilder
from datamodules.document_qa.types.question import Question
from datamodules.multimodal.batch import Chat, Images
from datamodules.multimodal.chat_dataset import ChatItem, encode_sample, sample_indices
from datamodules.multimodal.images.tiling import Views, collate_views, empty_views
from datamodules.multimodal.text.chat_encoder import ChatEncoder, Message
from datamodules.multimodal.text.packing import pad_prompts
from engine.data.errors import KnownBadSampleError
from engine.data.sample_loading import SkippedSample, load_samples
from engine.data.samplers import MicroBatchRequest

_ANSWERS = 1 << 14
"""Number of answers whose tokens are cached."""


class EvaluationPrompt(NamedTuple):
    """One of the prompts in which a question is asked, with the answers that are scored after it."""

    variant: int
    chat: Chat
    views: Views
    continuations: tuple[tuple[int, NDArray[np.int64]], ...]  # [(index of the option or -1, tokens of the answer)]


class DocumentEvaluationDataset(Dataset[EvaluationBatch]):
    """Evaluation batches, sorted by length to reduce padding.

    Args:
        sample_builder: the samples; each has one question.
        encoder: encodes chats.
        option_orders: number of cyclic orders of the options to ask a choice question in, including the original order;
            a question whose options refer to each other keeps its order.
        question_only: also ask each question without its document.
        evidence: number of samples, from the first, that are also asked without each chunk of their context; None for
            all. `ContextSettings.evidence_chunks` limits the chunks to the best-ranked pages.
        in_order: keep the order of the samples, in which predictions are written.
        number: number of samples, from the first; None for all.
        skip_bad: skip bad samples; otherwise they raise.
    """

    def __init__(
        self,
        sample_builder: SampleBuilder,
        encoder: ChatEncoder,
        option_orders: int = 1,
        question_only: bool = True,
        evidence: int | None = 0,
        in_order: bool = False,
        number: int | None = None,
        skip_bad: bool = False,
    ) -> None:
        self.sample_builder, self.encoder, self.option_orders = sample_builder, encoder, option_orders
        self.question_only, self.evidence = question_only, evidence
        self.in_order, self.skip_bad = in_order, skip_bad
        self.number = len(sample_builder) if number is None else number
        self._known: dict[str, NDArray[np.int64]] = {}

    def first(self, number: int) -> "DocumentEvaluationDataset":
        """Return the data set of the first samples; the shortest samples would be a biased choice."""
        return DocumentEvaluationDataset(
            sample_builder=self.sample_builder,
            encoder=self.encoder,
            option_orders=self.option_orders,
            question_only=self.question_only,
            evidence=self.evidence,
            in_order=self.in_order,
            number=number,
            skip_bad=self.skip_bad,
        )

    def __len__(self) -> int:
        return self.number

    def measure_samples(self) -> None:
        """Measure all samples once, before loader workers are forked, and log how many pages are dropped."""
        if not self.in_order:
            assert len(self._order) == len(self)
            self.sample_builder.log_dropped_pages(self._lengths)

    @cached_property
    def _order(self) -> NDArray[np.int64]:
        if self.in_order:
            return np.arange(len(self))
        return np.argsort([tokens for tokens, _ in self._lengths], kind="stable")

    @cached_property
    def _lengths(self) -> list[tuple[int, int]]:
        """(number of tokens, number of dropped pages) of each sample's context."""
        return [self.sample_builder.length(index) for index in range(len(self))]

    def __getitem__(self, request: MicroBatchRequest) -> EvaluationBatch:
        loaded, indices, skipped = load_samples(self._order[sample_indices(request)], self._make_prompts, self.skip_bad)
        evaluation_prompts = [prompt for sample_prompts, _ in loaded for prompt in sample_prompts]
        samples = np.repeat(indices, [len(sample_prompts) for sample_prompts, _ in loaded])
        shown = (
            RetrievedContext(index, sample.ranked, context.chunks)
            for (_, (sample, context)), index in zip(loaded, indices.tolist(), strict=True)
        )
        pad = self.encoder.tokenizer.pad
        return EvaluationBatch(
            pad_prompts([prompt.chat for prompt in evaluation_prompts], samples, pad),
            torch.tensor([prompt.variant for prompt in evaluation_prompts] or [WHOLE], dtype=torch.int64),
            self._images([prompt.views for prompt in evaluation_prompts]),
            self._continuations([prompt.continuations for prompt in evaluation_prompts]),
            skipped,
            tuple(shown),
        )

    # -- samples -----------------------------------------------------------------------------------------------------

    def _make_prompts(
        self, index: int
    ) -> tuple[list[EvaluationPrompt], tuple[DocumentSample, Context]] | SkippedSample:
        try:
            sample = self.sample_builder.build(0, index)
        except KnownBadSampleError as error:
            return SkippedSample("accepted", str(error), index)
        context, name = self.sample_builder.context(sample), self.sample_builder.name(index)
        (question,) = sample.questions
        sample_prompts = [self._prompt(WHOLE, question, context, name)]
        orders = 1 if refers_to_others(question) else min(self.option_orders, len(question.options))
        for turn in range(1, orders):
            sample_prompts.append(self._prompt(turn, question, context, name))
        if self.question_only:
            sample_prompts.append(self._prompt(QUESTION_ONLY, question, Context(), name))
        if self.evidence is None or index < self.evidence:
            sample_prompts += self._without_each_chunk(question, sample, context, name)
        return sample_prompts, (sample, context)

    def _without_each_chunk(
        self, question: Question, sample: DocumentSample, context: Context, name: str
    ) -> Iterator[EvaluationPrompt]:
        for chunk in self._chunks_to_ablate(sample, context):
            remaining = self.sample_builder.context_builder.without(context, sample.document, chunk)
            prompt = self._prompt(FIRST_CHUNK + chunk, question, remaining, name)
            # For an open question the generated text is scored instead, which only the model knows.
            yield prompt if question.options else prompt._replace(continuations=())

    def _chunks_to_ablate(self, sample: DocumentSample, context: Context) -> list[int]:
        """Return the indices of the chunks to skip, in the order of the context."""
        max_chunks, chunks = self.sample_builder.context_builder.settings.evidence_chunks, context.chunks
        rank = {page: position for position, page in enumerate(sample.ranked)}
        best = sorted(range(len(chunks)), key=lambda index: (rank.get(chunks[index].page, len(rank)), index))
        return sorted(best[:max_chunks])

    def _prompt(self, variant: int, question: Question, context: Context, name: str) -> EvaluationPrompt:
        prompter, builder = self.sample_builder.prompter, self.sample_builder.context_builder
        order = rotated_order(question, variant if 0 < variant < FIRST_CHUNK else 0)
        views = sample_views(context, builder.layout)
        messages = prompter.messages(context.text, [(prompter.question_text(question, order), None)])
        item = ChatItem(messages, builder.features(context.views), views)
        if question.options:
            answers = tuple(
                (index, prompter.option_text(question, index, order)) for index in range(len(question.options))
            )
        else:
            answer = prompter.answer_text(question)
            answers = () if answer is None else ((-1, answer),)
        continuations = tuple((option, self._answer_tokens(question, text)) for option, text in answers)
        return EvaluationPrompt(variant, encode_sample(self.encoder.prompt, item, name), views, continuations)

    def _answer_tokens(self, question: Question, text: str) -> NDArray[np.int64]:
        """Return the tokens of an answer with the end-of-turn tokens; they are the same after any prompt.

        Raises:
            BadSampleError: the answer cannot be encoded; the message names the question.
        """
        if text not in self._known:
            if len(self._known) >= _ANSWERS:
                self._known.clear()
            messages = [Message(role="user", content="?"), Message(role="assistant", content=text)]
            item = ChatItem(messages, (), empty_views(self.sample_builder.context_builder.layout))
            chat = encode_sample(self.encoder.chat, item, question_label(question))
            self._known[text] = chat.tokens[chat.supervised]
        return self._known[text]

    # -- batches -----------------------------------------------------------------------------------------------------

    def _images(self, views: Sequence[Views]) -> Images:
        return collate_views(views, self.sample_builder.context_builder.layout)

    def _continuations(self, answers: Sequence[tuple[tuple[int, NDArray[np.int64]], ...]]) -> Continuations:
        rows = [(prompt, option, tokens) for prompt, options in enumerate(answers) for option, tokens in options]
        lengths = [len(tokens) for *_, tokens in rows]
        padded = np.full((len(rows), max(lengths, default=1)), self.encoder.tokenizer.pad, np.int64)
        for row, (*_, tokens) in enumerate(rows):
            padded[row, : len(tokens)] = tokens
        numbers = (lengths, [prompt for prompt, *_ in rows], [option for _, option, _ in rows])
        return Continuations(torch.from_numpy(padded), *(torch.tensor(column, dtype=torch.int64) for column in numbers))

"""Builds samples before encoding: questions, their document and its pages for the context."""

import logging
from collections.abc import Sequence
from itertools import zip_longest
from typing import NamedTuple

from datamodules.document_qa.augmentation.augmenter import Augmenter
from datamodules.document_qa.prompt.context import Context, ContextBuilder, PageSelection
from datamodules.document_qa.prompt.prompt import PromptBuilder, question_label
from datamodules.document_qa.types.document import Document
from datamodules.document_qa.types.question import Question, QuestionSet, Retriever
from datamodules.document_qa.views.ablation import Ablation, apply_ablation
from engine.data.errors import BadSampleError

log = logging.getLogger("lockstep")


class DocumentSample(NamedTuple):
    """Questions about a document, and the pages for their context."""

    questions: Sequence[Question]
    document: Document  # after augmentation and ablation
    ranked: tuple[int, ...]  # page numbers, in the retriever's order
    choice: PageSelection


class SampleBuilder:
    """Builds the samples of a question set.

    Args:
        questions: the question set.
        retriever: ranks the pages of a document.
        builder: builds contexts.
        prompter: builds chats.
        ablate: content to remove from documents. Pages are selected from the whole document, so a run with ablation
            has the same pages as a run without.
        augmenter: augments training samples; None for no augmentation.
        evidence_first: rank a question's known evidence pages before all others.
    """

    def __init__(
        self,
        questions: QuestionSet,
        retriever: Retriever,
        builder: ContextBuilder,
        prompter: PromptBuilder,
        ablate: Ablation = "none",
        augmenter: Augmenter | None = None,
        evidence_first: bool = False,
    ) -> None:
        self.questions, self.retriever, self.context_builder, self.prompter = questions, retriever, builder, prompter
        self.ablate, self.augmenter, self.evidence_first = ablate, augmenter, evidence_first
        self._logged = False

    def __len__(self) -> int:
        return len(self.questions)

    def name(self, index: int, epoch: int = 0) -> str:
        """Return a name of a sample for messages."""
        return self.questions.name(index, epoch)

    def build(self, epoch: int, index: int) -> DocumentSample:
        """Build a sample.

        Raises:
            BadSampleError: the sample cannot be read, or no page of its document fits the budget; the message names it.
        """
        questions, document = self.questions.questions(epoch, index), self.questions.document(epoch, index)
        if self.ablate == "question_only":
            return DocumentSample(questions, document, (), PageSelection(()))
        ranked = interleave([self._rank_pages(document, question) for question in questions])
        if self.augmenter is not None:
            questions, document, ranked = self.augmenter.augment(
                questions, document, ranked, lambda: self.questions.another_document(epoch, index), epoch, index
            )
        shown = apply_ablation(document, self.ablate, lambda: self.questions.another_document(epoch, index))
        # Figures of another document may need more tokens. Removing content must not change the selection of pages.
        choice = self.context_builder.choose(shown if self.ablate == "shuffled_figure" else document, ranked)
        if not choice.pages and self.context_builder.settings.empty == "stop":
            raise BadSampleError(self._no_page_message(questions[0], document, ranked))
        return DocumentSample(questions, shown, ranked, choice)

    def context(self, sample: DocumentSample) -> Context:
        """Build the context of a sample."""
        self._log_dropped(sample)
        return self.context_builder.context(sample.document, sample.choice.pages)

    def length(self, index: int) -> tuple[int, int]:
        """Return (number of tokens, number of dropped pages) of a sample's context; (0, 0) for a bad sample."""
        try:
            sample = self.build(0, index)
        except BadSampleError:
            return 0, 0  # loading the sample reports the reason
        choice = sample.choice
        return self.context_builder.length(sample.document, choice.pages), len(choice.dropped) + len(choice.too_long)

    def log_dropped_pages(self, lengths: Sequence[tuple[int, int]]) -> None:
        """Log how many pages of how many samples are dropped; single samples are not logged after that."""
        self._logged = True
        some = [pages for _, pages in lengths if pages]
        if some:
            log.info(
                "data.init_args.context drops ranked pages: %s pages of %s of %s questions",
                f"{sum(some):,}", f"{len(some):,}", f"{len(lengths):,}",
            )  # fmt: skip

    def _rank_pages(self, document: Document, question: Question) -> list[int]:
        ranked = self.retriever.rank(document, question)
        if not self.evidence_first:
            return ranked
        evidence = [page for page in question.evidence_pages if 1 <= page <= len(document.pages)]
        # As many pages as without evidence: an additional page would reveal which questions are answerable.
        width = max(len(ranked), len(evidence))
        return [*evidence, *(page for page in ranked if page not in evidence)][:width]

    def _no_page_message(self, question: Question, document: Document, ranked: Sequence[int]) -> str:
        name, settings = f"{question_label(question)}: {document.name}", self.context_builder.settings
        if not ranked:
            return (
                f"{name} has {len(document.pages)} pages, and the retriever ranks none of them. Set another "
                "data.init_args.retriever, or data.init_args.context.empty ask to ask without a document"
            )
        shortest = min(self.context_builder.length(document, [page]) for page in ranked)
        return (
            f"{name}: none of {len(ranked)} pages fits data.init_args.context (tokens {settings.tokens}, max_images "
            f"{settings.max_images}); the shortest has {shortest} tokens. Increase the budget, or set "
            "data.init_args.context.empty ask to ask without a document"
        )

    def _log_dropped(self, sample: DocumentSample) -> None:
        """Log dropped pages, once per process."""
        dropped, too_long = sample.choice.dropped, sample.choice.too_long
        if self._logged or not (dropped or too_long):
            return
        self._logged = True
        alone = f", {len(too_long)} of them longer than the budget alone" if too_long else ""
        log.info(
            "%s: data.init_args.context drops %s of %s ranked pages%s (logged for the first such question only)",
            question_label(sample.questions[0]), len(dropped) + len(too_long), len(sample.ranked), alone,
        )  # fmt: skip


def interleave(rankings: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Interleave rankings of the same pages: all first pages, all second pages, ..., each page once.

    All pages are kept, as the evidence of a question may be in its own ranking only.
    """
    rounds = zip_longest(*rankings)
    return tuple(dict.fromkeys(page for pages in rounds for page in pages if page is not None))

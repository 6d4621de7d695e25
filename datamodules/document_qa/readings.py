"""A sample of the family before it is a chat: questions, their document, and the context that is put before them."""

import logging
from collections.abc import Sequence
from itertools import zip_longest
from typing import NamedTuple

from datamodules.document_qa.ablation import Ablation, ablated
from datamodules.document_qa.augmentation.augmenter import Augmenter
from datamodules.document_qa.context import Choice, Context, ContextBuilder
from datamodules.document_qa.document import Document
from datamodules.document_qa.prompt import Prompter, where
from datamodules.document_qa.question import Question, QuestionSet, Retriever
from datamodules.multimodal.unusable import UnusableSample

log = logging.getLogger("lockstep")


class Reading(NamedTuple):
    """Questions about a document, and what is shown of it."""

    questions: Sequence[Question]
    document: Document  # as it is shown: ablated, augmented
    ranked: tuple[int, ...]  # pages, the retriever's best first
    choice: Choice


class Readings:
    """What is read for each sample of a set of questions.

    Args:
        questions: the set.
        retriever: ranks a document's pages.
        builder: makes contexts.
        prompter: makes chats of them.
        ablate: what documents are shown without. The pages are chosen from the whole document all the same, so that they are those of a run without ablation.
        augmenter: alters questions and documents, in training; None: they are as they are.
        evidence_first: a question's evidence pages are ranked before all others, where they are known.
    """  # noqa: E501

    def __init__(
        self,
        questions: QuestionSet,
        retriever: Retriever,
        builder: ContextBuilder,
        prompter: Prompter,
        ablate: Ablation = "none",
        augmenter: Augmenter | None = None,
        evidence_first: bool = False,
    ) -> None:
        self.questions, self.retriever, self.builder, self.prompter = questions, retriever, builder, prompter
        self.ablate, self.augmenter, self.evidence_first = ablate, augmenter, evidence_first
        self._told = False

    def __len__(self) -> int:
        return len(self.questions)

    def name(self, index: int, epoch: int = 0) -> str:
        return self.questions.name(index, epoch)

    def reading(self, epoch: int, index: int) -> Reading:
        """
        Raises:
            UnusableSample: the sample cannot be used, or nothing of its document fits the budget; the message names it.
        """
        questions, document = self.questions.questions(epoch, index), self.questions.document(epoch, index)
        if self.ablate == "question_only":
            return Reading(questions, document, (), Choice(()))
        ranked = in_turn([self._ranked(document, question) for question in questions])
        if self.augmenter is not None:
            questions, document, ranked = self.augmenter.altered(
                questions, document, ranked, lambda: self.questions.another_document(epoch, index), epoch, index
            )
        shown = ablated(document, self.ablate, lambda: self.questions.another_document(epoch, index))
        # Another document's figures may need more room; what is only taken away must not change which pages there are.
        choice = self.builder.choose(shown if self.ablate == "shuffled_figure" else document, ranked)
        if not choice.pages and self.builder.settings.empty == "stop":
            raise UnusableSample(self._nothing_left(questions[0], document, ranked))
        return Reading(questions, shown, ranked, choice)

    def context(self, reading: Reading) -> Context:
        """What is put before its questions."""
        self._tell(reading)
        return self.builder.context(reading.document, reading.choice.pages)

    def length(self, index: int) -> tuple[int, int]:
        """How many tokens the context of a sample has, and how many ranked pages it leaves out; (0, 0): unusable."""
        try:
            reading = self.reading(0, index)
        except UnusableSample:
            return 0, 0  # whoever asks for the sample is told
        choice = reading.choice
        return self.builder.length(reading.document, choice.pages), len(choice.dropped) + len(choice.too_long)

    def tell_all(self, lengths: Sequence[tuple[int, int]]) -> None:
        """That pages are left out: of how many samples, how many. Then no sample of these is told any more."""
        self._told = True
        some = [pages for _, pages in lengths if pages]
        if some:
            log.info(
                "data.init_args.context leaves out pages that the retriever names: %s, of %s of %s questions",
                f"{sum(some):,}", f"{len(some):,}", f"{len(lengths):,}",
            )  # fmt: skip

    def _ranked(self, document: Document, question: Question) -> list[int]:
        ranked = self.retriever.rank(document, question)
        if not self.evidence_first:
            return ranked
        evidence = [page for page in question.evidence_pages if 1 <= page <= len(document.pages)]
        # As many as without evidence: one page more would tell which questions can be answered.
        most = max(len(ranked), len(evidence))
        return [*evidence, *(page for page in ranked if page not in evidence)][:most]

    def _nothing_left(self, question: Question, document: Document, ranked: Sequence[int]) -> str:
        asked, settings = f"{where(question)}: {document.name}", self.builder.settings
        if not ranked:
            return (
                f"{asked} has {len(document.pages)} pages, and the retriever finds none for it. Choose another "
                "data.init_args.retriever, or ask without a document: data.init_args.context.empty ask"
            )
        shortest = min(self.builder.length(document, [page]) for page in ranked)
        return (
            f"{asked}: none of {len(ranked)} pages fits data.init_args.context (tokens {settings.tokens}, max_images "
            f"{settings.max_images}); the shortest has {shortest} tokens. Pages are never cut: raise the budget, or "
            "ask without a document: data.init_args.context.empty ask"
        )

    def _tell(self, reading: Reading) -> None:
        """Once in a process: that pages are left out."""
        dropped, too_long = reading.choice.dropped, reading.choice.too_long
        if self._told or not (dropped or too_long):
            return
        self._told = True
        alone = f", {len(too_long)} of them longer than the budget alone" if too_long else ""
        log.info(
            "%s: of %s pages that the retriever names %s are left out%s, as data.init_args.context says (only the "
            "first such question is told)", where(reading.questions[0]), len(reading.ranked),
            len(dropped) + len(too_long), alone,
        )  # fmt: skip


def in_turn(rankings: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Rankings of the same pages as one: everybody's first, everybody's second, ..., each page once.

    None is left out: what a question of a chat is about may be in its own ranking alone.
    """
    rounds = zip_longest(*rankings)
    return tuple(dict.fromkeys(page for one in rounds for page in one if page is not None))

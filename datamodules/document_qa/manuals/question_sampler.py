"""Samples questions about a chapter."""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from datamodules.document_qa.manuals.devices import Chapter, choose, choose_one
from datamodules.document_qa.manuals.question_types import (
    DRAWING,
    KINDS,
    NAMED_KINDS,
    OPTIONS,
    UNANSWERABLE_BASES,
    UNANSWERABLE_KIND,
    ManualQuestionType,
    QuestionContent,
    ask_unanswerable,
    state_part,
)
from datamodules.document_qa.manuals.settings import ManualQuestionSettings, ManualSettings
from datamodules.document_qa.manuals.templates import ON_PAGE, UNSEEN_WORDINGS, WORDINGS
from datamodules.document_qa.types.question import UNANSWERABLE, AnswerType, Source


class SampledQuestion(NamedTuple):
    """A question with all its properties."""

    kind: str
    seen_wording: bool  # whether the wording occurs in training
    question: str
    options: tuple[str, ...]  # empty for an open question
    answer: str
    right: int | None  # index of the answer in `options`
    answer_type: AnswerType
    source: Source
    pages: tuple[int, ...]  # pages that the answer follows from; empty for an unanswerable question


@dataclass(frozen=True)
class QuestionSampler:
    """Samples questions as the settings describe.

    Raises:
        ValueError: a kind is unknown, or the pages cannot answer it; or the fraction of unanswerable questions is too
            large.
    """

    manuals: ManualSettings
    questions: ManualQuestionSettings

    def __post_init__(self) -> None:
        self.manuals.check()
        self.questions.check()
        named = {name: share for name, share in self.questions.task_mix.items() if share}
        known = (*KINDS, UNANSWERABLE_KIND, *NAMED_KINDS)
        if set(named) - set(known) or min(named.values(), default=1.0) < 0 or (self.questions.task_mix and not named):
            raise ValueError(
                f"data.init_args.questions.task_mix: found {self.questions.task_mix}, expected weights of at least 0 "
                f"for {', '.join(known)}, with at least one above 0"
            )
        for name in set(named) - {UNANSWERABLE_KIND}:
            if missing := set(self._kind(name).pages).difference(self.manuals.pages):
                raise ValueError(
                    f"data.init_args.questions.task_mix: {name} needs pages that data.init_args.manuals.pages "
                    f"lacks: {', '.join(missing)}"
                )
        if UNANSWERABLE_KIND in self.shares and (not self._unanswerable_bases or self._unanswerable_option_share > 1):
            raise ValueError(
                "data.init_args.questions.task_mix: too many unanswerable questions, whose option would be right too "
                f"often; expected at most a third of the weight of {', '.join(UNANSWERABLE_BASES)} together"
            )

    def ask(self, random: np.random.Generator, chapter: Chapter, test: bool) -> SampledQuestion:
        """Sample a question.

        Args:
            random: source of all random numbers.
            chapter: the chapter that it is about.
            test: allow wordings that do not occur in training.
        """
        return self._ask(random, self._drawn(random, self.shares), chapter, test)

    def describe(self, random: np.random.Generator, chapter: Chapter) -> SampledQuestion:
        """Return the request to describe a chapter's drawing."""
        return self._ask(random, DRAWING.name, chapter, test=False)

    def _ask(self, random: np.random.Generator, name: str, chapter: Chapter, test: bool) -> SampledQuestion:
        unanswerable = name == UNANSWERABLE_KIND
        kind = self._kind(self._drawn(random, self._unanswerable_bases) if unanswerable else name)
        if unanswerable:
            content = ask_unanswerable(random, kind, chapter, self.manuals)
        else:
            content = kind.ask(random, chapter, self.manuals)
        answer_type = kind.answer_type
        if self.questions.stated_parts and kind.source in ("hop", "cross"):
            content, answer_type = state_part(content), "string"
        seen = not (test and random.random() < self.questions.unseen_wordings)
        wording = choose_one(random, WORDINGS[content.wording]) if seen else UNSEEN_WORDINGS[content.wording]
        question = wording.format(**content.slots)
        if random.random() < self.questions.page_mentions:
            question = ON_PAGE.format(page=chapter.pages[kind.pages[0]], question=question)
        options, right = self._options(random, content, kind.name in self._unanswerable_bases)
        if unanswerable:
            return SampledQuestion(
                kind=name,
                seen_wording=seen,
                question=question,
                options=options,
                answer=content.answer,
                right=right,
                answer_type="unanswerable",
                source="none",
                pages=(),
            )
        pages = tuple(sorted(chapter.pages[page] for page in kind.pages))
        return SampledQuestion(
            kind=name,
            seen_wording=seen,
            question=question,
            options=options,
            answer=content.answer,
            right=right,
            answer_type=answer_type,
            source=kind.source,
            pages=pages,
        )

    @staticmethod
    def description(chapter: Chapter) -> str:
        """Return the request to describe a drawing, with the answer, as text."""
        content = DRAWING.ask(np.random.Generator(np.random.Philox(key=0)), chapter, ManualSettings())
        return "\n".join([WORDINGS[DRAWING.name][0].format(**content.slots), content.answer])

    def _options(
        self, random: np.random.Generator, content: QuestionContent, may_hide: bool
    ) -> tuple[tuple[str, ...], int | None]:
        """Return the options and the index of the right option; () and None for an open question."""
        if not content.others or random.random() >= self.questions.choice_share:
            return (), None
        wrong = choose(random, content.others, OPTIONS - 1)
        if content.answer != UNANSWERABLE and may_hide and random.random() < self._unanswerable_option_share:
            wrong[0] = UNANSWERABLE
        # Shuffles them: the unanswerable option would otherwise always be the first wrong option.
        wrong = choose(random, wrong, OPTIONS - 1)
        right = int(np.searchsorted(self._letters[:-1], random.random(), side="right"))
        return (*wrong[:right], content.answer, *wrong[right:]), right

    @cached_property
    def shares(self) -> dict[str, float]:
        """Fraction of each kind of question; they sum to 1."""
        sizes = {name: share for name, share in self.questions.task_mix.items() if share}
        if not sizes:
            pages = set(self.manuals.pages)
            sizes = {name: 1.0 for name, kind in KINDS.items() if pages.issuperset(kind.pages)}
            if not set(UNANSWERABLE_BASES).isdisjoint(sizes):
                sizes[UNANSWERABLE_KIND] = 1.0
        whole = sum(sizes.values())
        return {name: size / whole for name, size in sizes.items()}

    @cached_property
    def _unanswerable_bases(self) -> dict[str, float]:
        """Fractions of the kinds whose wordings unanswerable questions use."""
        return {name: self.shares[name] for name in UNANSWERABLE_BASES if name in self.shares}

    @property
    def _unanswerable_option_share(self) -> float:
        """Fraction of these kinds' choice questions with the unanswerable option, so that it is right in 1 of 4."""
        unanswerable = self.shares.get(UNANSWERABLE_KIND, 0.0)
        return (OPTIONS - 1) * unanswerable / sum(self._unanswerable_bases.values()) if unanswerable else 0.0

    @cached_property
    def _letters(self) -> NDArray[np.float64]:
        until = np.cumsum(np.array(self.questions.answer_letter_weights, np.float64))
        return until / until[-1]

    @staticmethod
    def _kind(name: str) -> ManualQuestionType:
        return NAMED_KINDS[name] if name in NAMED_KINDS else KINDS[name]

    @staticmethod
    def _drawn(random: np.random.Generator, shares: dict[str, float]) -> str:
        at, until = random.random() * sum(shares.values()), 0.0
        for name, share in shares.items():
            until += share
            if at < until:
                return name
        return name  # the last kind, if rounding makes the sum smaller than `at`
